"""What is sent to the ranks and comes back to the kernel."""
