"""When files are flushed."""
