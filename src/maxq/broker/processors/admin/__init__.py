"""Requests of operators, one module for each noun."""
