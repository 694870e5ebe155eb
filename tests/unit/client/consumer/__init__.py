"""Consumers: what they pull, hand to listeners, commit, and share among members."""
