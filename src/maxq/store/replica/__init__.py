"""A slave's log: bytes of its master, each record verified before it counts."""
