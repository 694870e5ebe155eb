"""Requests in which clients describe themselves and their groups.

`client_manage.py` takes heartbeats, `consumer_manage.py` members, offsets and queue locks; `query_assignment.py`
rebalances for consumers, by the table `message_request_mode_manager.py`; `reset_offset.py` lets a group go on
elsewhere.
"""
