"""The recorded program under other settings, on other cards, with other batches; no torch.

`what_if` asks, `rerun` runs, `simulated` makes a record of a run, `questions` is all of it as JSON.
"""
