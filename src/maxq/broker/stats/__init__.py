"""Statistics of the broker: by topic, group, queue and cluster, with minute, hour and day views.

`broker_stats_manager.py` has the counters (`names.py`, `stats_item.py`) and samples them. `topic_puts.py`,
`put_times.py` and `stage_times.py` are what the path of a send counts for it; `broker_stats.py` compares days.
`runtime_info.py` is the answer of GET_BROKER_RUNTIME_INFO.
"""
