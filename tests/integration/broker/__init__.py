"""A real broker on free ports, over a small store, asked by code and header as any client would ask it.

`conftest.py` has the fixture, `harness.py` the raw client. The rooms are named for kinds of requests, and for what a
broker does on its own.
"""
