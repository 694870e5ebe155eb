"""Topics: their configuration, validation, retention, and what the compiled send path knows of them."""
