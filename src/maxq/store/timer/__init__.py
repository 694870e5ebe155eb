"""The timer's files, and its rules: what waits for its delivery time.

`timer_message_store.py` is the whole: `timer_topic.py` (where messages wait), `timer_wheel.py` (one slot a second)
and `timer_log.py` (a unit for each message), `roll_window.py` for times beyond the wheel. `timer_recovery.py`,
`timer_checkpoint_file.py` and `delivered_copies.py` are for the start, `timer_metrics.py`, `timer_listing.py` and
`offline_timer.py` for operators; `moved_messages.py` and `timer_record.py` are single facts.
"""
