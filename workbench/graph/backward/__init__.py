"""Measuring the backward of a captured graph, node by node."""
