"""Transactions: half messages, their end, and the question to producers that did not say."""
