"""Slaves: what they copy, serve, refuse and promise."""
