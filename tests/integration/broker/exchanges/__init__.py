"""Requests as a whole: recorded ones of Java's clients, and any header and body."""
