"""Checks of a model and an optimizer before ranks may compute their steps."""
