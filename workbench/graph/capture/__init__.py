"""From the graph of a live loss to columns: nodes, calls, modules, saved tensors."""
