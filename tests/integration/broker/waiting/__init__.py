"""Messages with a delay level or a time."""
