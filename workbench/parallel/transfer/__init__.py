"""What travels to the ranks and comes home."""
