"""What torch says while it compiles, kept and made into a record."""
