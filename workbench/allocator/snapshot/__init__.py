"""Reading allocator snapshots: an untrusted file, or the live allocator's own."""
