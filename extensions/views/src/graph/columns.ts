/** The columns of a `GraphRecord` that the view reads. */
import type {
  Branch,
  GraphModule,
  NonFinite,
  SourceLine,
  Unreached,
} from '@torch-workbench/records';

export type Column = ArrayLike<number>;
export type SourceText = SourceLine;

export interface GraphColumns {
  title: string;
  model: string;
  step: number | null;
  loss: number | null;
  device: string;
  notes: readonly string[];
  strings: readonly string[];
  modules: readonly GraphModule[];
  sources: readonly SourceText[];
  node_type: Column;
  node_op: Column;
  node_kind: Column;
  node_module: Column;
  node_call: Column;
  node_sequence: Column;
  node_shape: Column;
  node_dtype: Column;
  node_output_bytes: Column;
  node_name: Column;
  node_source: Column;
  node_saved_bytes: Column;
  node_shared_bytes: Column;
  node_gradient_norm: Column;
  node_gradient_max: Column;
  node_gradient_zeros: Column;
  node_gradient_non_finite: Column;
  edge_from: Column;
  edge_to: Column;
  edge_bytes: Column;
  storage_bytes: Column;
  storage_kind: Column;
  hold_node: Column;
  hold_storage: Column;
  hold_name: Column;
  hold_shape: Column;
  bin_node: Column;
  bin_power: Column;
  bin_share: Column;
  gradients: boolean;
  non_finite: NonFinite | null;
  unreached: readonly Unreached[];
  branches: readonly Branch[];
  inner_node: Column;
  inner_op: Column;
  inner_module: Column;
  inner_shape: Column;
  inner_dtype: Column;
  inner_source: Column;
  inner_ends: Column;
  link_from: Column;
  link_to: Column;
  root: number;
  saved_bytes: number;
  parameter_bytes: number;
  buffer_bytes: number;
  input_bytes: number;
}
