/** The graph view over a record file, without Jupyter: `index.html?record=<url>`. */
import { GRAPH_RECORD, readRecordAs } from '@torch-workbench/records';
import { mount } from '../src/graph';
import { open } from './graph-page';

void open((bytes) => readRecordAs(GRAPH_RECORD, bytes), mount);
