"""The audit of a store: what of each queue and index is there, missing, twice or damaged.

`job.py` compares the log with what was derived from it, and copies of a log with each other; `tasks.py` is what its
tasks read, `report.py` the page.
"""
