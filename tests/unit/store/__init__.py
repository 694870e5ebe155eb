"""Tests of `maxq.store`, in rooms that are named as those of the package.

`stores.py` makes small stores and messages, `log_world.py` a log alone, `naive.py` reads files in the simplest way,
as a second opinion.
"""
