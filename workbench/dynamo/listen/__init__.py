"""Recording what torch reports while it compiles."""
