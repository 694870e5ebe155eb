"""Subscription groups: their configuration."""
