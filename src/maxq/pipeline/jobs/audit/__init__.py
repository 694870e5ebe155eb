"""The audit: what of each queue is there, missing, twice or damaged."""
