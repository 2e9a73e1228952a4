export * from './generated';
export * from './read';
