"""Files of others: allocator snapshots and saved records, read without trust.

No torch: `workbench.allocator` decodes and replays, and what it finds is packed here.
"""
