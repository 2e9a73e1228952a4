"""Modes: reversible changes to how a training step is computed."""
