"""Consumer offsets: how far each group is in each queue."""
