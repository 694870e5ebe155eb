"""Tests of `maxq.client`, in rooms that are named as those of the package.

`mock_broker.py` is a cluster that does as it is told, in virtual time.
"""
