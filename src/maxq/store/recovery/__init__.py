"""From files on disk to a store that can be written.

Read `recovery.py` (the order of steps), `log_recovery.py` (where the log ends), `log_scanner.py` (what in it is
damaged), `damage.py` (how a damaged range is covered by a filler, so that the good records behind it keep their
places) and `queue_rebuild.py` (all queues anew). `filled_ranges.py` is the list of such ranges, kept in
`seals.json`; `restore_places.py` brings queue units back when a slave or master had the true bytes, `file_check.py`
looks for damage while the broker runs. `store_files.py` has the lock, the abort file and the reasons not to start;
`recovery_report.py` is what a start tells.
"""
