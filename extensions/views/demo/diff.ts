/** The diff view over a record file, without Jupyter: `index.html?record=<url>`. */
import { GRAPH_DIFF, readRecordAs } from '@torch-workbench/records';
import { mount } from '../src/diff';
import { open } from './graph-page';

void open((bytes) => readRecordAs(GRAPH_DIFF, bytes), mount);
