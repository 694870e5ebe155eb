"""Pulls, filters and queries, and that a reader who is slow or asks for much holds up nobody."""
