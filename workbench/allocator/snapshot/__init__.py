"""Allocator snapshots are read: a file that nobody vouches for, or the live allocator's own."""
