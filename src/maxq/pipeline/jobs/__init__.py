"""The jobs: each reads, calls functions of `transforms`, and writes; with a dataclass of its settings.

`archive`, `audit` and `rebuild` are folders of their own; `replay.py`, `dlq.py`, `stats.py` and `trace.py` are one
file each. `task_frame.py` cuts work into tasks; `message_input.py`, `small_tables.py` and `progress.py` are what
jobs share.
"""
