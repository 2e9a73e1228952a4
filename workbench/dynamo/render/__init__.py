"""The static views of a compile report."""
