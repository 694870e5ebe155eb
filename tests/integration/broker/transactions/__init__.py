"""Transactions: half messages, ends, and producers that are asked."""
