"""From files on disk to a store that can be written.

Read `recovery.py` (the order of steps), `log_recovery.py` (where the log ends), `log_scanner.py` (what in it is
damaged) and `queue_rebuild.py` (all queues anew). `store_files.py` has the lock, the abort file and the reasons not
to start; `recovery_report.py` is what a start tells.
"""
