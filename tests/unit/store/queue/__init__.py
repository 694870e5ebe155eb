"""Queues and their extensions."""
