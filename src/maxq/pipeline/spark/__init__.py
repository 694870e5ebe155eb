"""Dealing with Spark itself.

`home.py` and `java.py` are what it starts from, `start.py` its start; `worker.py` is what changes in its Python
workers, `errors.py` makes its errors readable.
"""
