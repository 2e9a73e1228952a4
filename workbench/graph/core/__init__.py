"""What every part of the graph tools stands on: names, owners, operations, lines, numbers."""
