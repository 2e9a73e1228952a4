"""The threads: who trains, who waits, and the end of the process."""
