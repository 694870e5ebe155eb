"""Requests of operators: one processor for each noun.

`admin_topic.py` and `admin_group.py` change the tables; `admin_config.py`, `admin_store.py`, `admin_client.py`,
`admin_consume_stats.py` and `admin_timer.py` show what there is; `admin_offset.py` moves groups. `purge_topic.py`,
`table_changes.py` and `message_type.py` serve MaxQ's own requests and checks.
"""
