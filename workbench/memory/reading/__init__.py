"""What a memory record contains: series, sums, fragmentation, sentences; no torch.

Pure functions of a `MemoryRecord`, or of columns that become one. Everything else in
`workbench.memory` may use them.
"""
