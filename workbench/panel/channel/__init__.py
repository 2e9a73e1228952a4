"""The live channels between a kernel and its browsers."""
