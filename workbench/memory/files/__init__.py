"""Untrusted files: allocator snapshots and saved records.

No torch: `workbench.allocator` decodes and replays, and its results are packed here.
"""
