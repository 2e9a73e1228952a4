"""The backward of a captured graph is measured, node by node."""
