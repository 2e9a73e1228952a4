"""The rules of the CUDA caching allocator."""
