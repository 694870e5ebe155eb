"""Which files go, and when."""
