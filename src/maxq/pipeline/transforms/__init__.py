"""Functions from DataFrame to DataFrame, without anything of their own to read or write.

`archive.py`, `replay.py`, `dead_letters.py` and `audit.py` serve the jobs of these names; `message_stats.py`,
`group_lag.py`, `latency.py`, `trace_records.py` and `trace_tables.py` make the numbers of reports. `json_body.py`,
`coverage.py`, `pace.py` and `time_steps.py` are parts of several.
"""
