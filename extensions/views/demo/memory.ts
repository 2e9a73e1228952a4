/** The memory view over a record file, without Jupyter: `index.html?record=<url>`. */
import { MEMORY_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '../src/memory';
import { open } from './graph-page';

void open((bytes) => readRecordAs(MEMORY_RECORD, bytes), mount);
