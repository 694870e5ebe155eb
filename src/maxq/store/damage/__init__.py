"""Damage in the middle of the log: it is covered by fillers, so that the good records behind it keep their places.

Read `damage.py` (how a damaged range is covered), then `filled_ranges.py` (the list of such ranges, kept in
`seals.json`). `file_check.py` looks for damage while the broker runs; `restore_places.py` brings queue units back when
a slave or master had the true bytes.
"""
