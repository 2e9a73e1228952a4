export { WhatIfBody } from './body';
