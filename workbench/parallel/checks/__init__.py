"""What is found out about a model and an optimizer before ranks may compute their steps."""
