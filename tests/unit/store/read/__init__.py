"""Reading messages by queue."""
