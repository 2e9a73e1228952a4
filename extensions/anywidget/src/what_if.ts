/** The row "What if?" of the memory view, which its widget requests when a person opens it. */
export { WhatIfBody } from '@torch-workbench/views/what-if';
