"""State that all parts of one store share.

`store_context.py` is settings, disk, clock and identity, handed to every part; `running_flags.py` says why the
store may not be read or written just now, `store_stats.py` counts what it did.
"""
