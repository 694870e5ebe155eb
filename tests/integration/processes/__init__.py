"""Servers as processes, groups of them, and the network between them: what tests start, kill and cut."""
