export { h } from '../dom';
export { Button, iconButton } from './button';
