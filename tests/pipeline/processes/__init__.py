"""Spark started as a process of its own: each file runs where there is room, beside those that share one session."""
