"""What a start makes of the files that it finds."""
