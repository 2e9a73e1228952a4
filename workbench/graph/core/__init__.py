"""What all graph tools use: names, owners, operations, source lines, numbers."""
