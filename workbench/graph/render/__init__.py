"""The static views of a graph: picture, figure, text, and formats of other programs."""
