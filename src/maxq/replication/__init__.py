"""Copies of a log on other machines."""
