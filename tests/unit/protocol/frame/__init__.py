"""Frames: codec, scanners of many at once, limits of size, and a connection without sockets."""
