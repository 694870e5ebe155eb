"""The tables of connected producers and consumers, queue locks, and what happens when one falls silent."""
