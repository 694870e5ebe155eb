"""Delay levels: messages that wait in SCHEDULE_TOPIC_XXXX, one queue a level, until they are due.

`delayed_messages.py` puts the parts together. `delay_hook.py` turns a message away to its level
(`delay_levels.py`). `schedule_message_service.py` delivers: `level_delivery.py` is one level,
`delay_level_queue.py` says what is due in it, `delayed_delivery.py` and `fast_path_delivery.py` put it into its
topic. `delay_offset_table.py` is how far each level is, `delivery_recovery.py` what was delivered since that was
written.
"""
