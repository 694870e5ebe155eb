"""What commands share at a terminal: reports, progress, near names, completion, error texts, Ctrl-C, pipes."""
