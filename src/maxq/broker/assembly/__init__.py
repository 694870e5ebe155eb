"""Puts a broker together.

`broker_base.py` makes tables, store, services and replication; `broker_parts.py` adds what answers requests;
`message_kinds.py` lists the features, `operations.py` metrics and quotas, `schedule.py` what runs periodically.
"""
