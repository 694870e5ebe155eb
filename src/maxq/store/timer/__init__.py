"""The timer's files: wheel, log, checkpoint, metrics."""
