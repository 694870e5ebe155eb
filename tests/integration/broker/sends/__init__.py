"""Sends of every kind, messages that consumers give back, and replies."""
