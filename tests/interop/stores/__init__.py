"""Stores that one side wrote and the other opens."""
