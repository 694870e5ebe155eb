"""Quotas: how much a topic takes, a group gets, and a user moves, per second."""
