"""Messages on their way into the log."""
