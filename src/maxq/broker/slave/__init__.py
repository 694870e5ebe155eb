"""A slave's copies of its master's tables, and the change between master and slave."""
