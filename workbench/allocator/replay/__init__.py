"""A recorded trace, run through the simulator and compared with what the allocator did."""
