"""The JSON that Java writes and reads, and nearly JSON."""
