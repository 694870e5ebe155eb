"""A slave's log: bytes appended as the master has them."""
