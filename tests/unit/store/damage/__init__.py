"""Damaged files: how damage is found, named and kept apart."""
