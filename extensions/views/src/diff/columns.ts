/** The columns of a `GraphDiff` that the view reads besides those of a graph. */
import type { DiffSide } from '@torch-workbench/records';
import type { Column, GraphColumns } from '../graph/columns';

export interface DiffColumns extends GraphColumns {
  a: DiffSide;
  b: DiffSide;
  sentence: string;
  cause_source: number;
  node_state: Column;
  node_a: Column;
  node_b: Column;
  node_shape_b: Column;
  node_dtype_b: Column;
  node_source_b: Column;
  node_saved_bytes_b: Column;
  node_shared_bytes_b: Column;
  node_gradient_norm_b: Column;
  node_gradient_non_finite_b: Column;
  edge_state: Column;
  edge_bytes_b: Column;
}
