"""The graph of a live loss becomes columns: nodes, calls, modules, saved tensors."""
