"""Questions that a record answers without the live graph."""
