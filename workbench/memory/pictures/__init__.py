"""Static pictures of a record, and two records side by side.

What `MemoryView` and `MemoryDiff` show where no widget can run.
"""
