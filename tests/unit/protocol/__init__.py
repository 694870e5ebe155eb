"""Tests of `maxq.protocol`, in rooms that are named as those of the package.

`golden_wire.py` has what Java wrote, to compare with byte for byte.
"""
