"""The log and its records, their staging, and the deletions that it notes."""
