/** The memory view over a record file, without Jupyter: `index.html?record=<url>`. */
import { readRecordAs } from '@torch-workbench/records';
import { mount } from '../src/memory';
import { open } from './graph-page';

void open((bytes) => readRecordAs('workbench.memory/1', bytes), mount);
