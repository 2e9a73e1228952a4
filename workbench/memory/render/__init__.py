"""Static pictures of a record, and of two records side by side.

`MemoryView` and `MemoryDiff` show them if no widget can run.
"""
