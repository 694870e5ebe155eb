"""Clients of one side on servers of the other: every kind of message and of consumption."""
