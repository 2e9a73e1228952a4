"""The recorded program under other settings, on other GPUs, with other batches; no torch.

`what_if` is the entry point, `rerun` runs, `simulated` makes a record of a run, `questions` is all
of it as JSON.
"""
