"""How a model is laid over ranks."""
