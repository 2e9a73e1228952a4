"""The threads of a run, evaluation, checkpoints on disk, and the end of the process."""
