"""`workbench.Modes`, for a loop of one's own."""
