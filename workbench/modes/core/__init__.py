"""The base class of modes, and what all of them use."""
