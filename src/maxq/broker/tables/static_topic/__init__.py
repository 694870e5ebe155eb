"""Static topics: requests about global queues become requests about physical ones, which may move between groups.

`static_topics.py` puts the parts together. `topic_queue_mapping_manager.py` is the table; `static_topic_gate.py`
stands before sends, pulls and offsets, and asks `other_brokers.py`; `pull_answers.py` translates what a pull
brought, and `one_by_one.py` keeps commits and resets in order. `moved_queue_hook.py` sends late messages after their
queue, `lock_hand_over.py` the locks of orderly consumers; `topic_queue_mapping_clean_service.py` cuts
chains.
"""
