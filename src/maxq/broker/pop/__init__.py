"""Pop consumption: the broker keeps the group's position, hides messages that it has delivered, and delivers them again
if they are not acknowledged.

Read `pop_message.py` (the request), `pop_reader.py` (reads and records messages), `check_point_buffer.py` (messages
that are not acknowledged yet), `ack_message.py`, then `pop_service.py` (what happens when the invisible time is over:
`retry_writer.py`, `pop_revive.py`, `revive_record_writer.py`). `pop_journal.py` is what survives a crash;
`order_service.py` and `order_info.py` keep the order of FIFO groups. `notification.py` asks without taking.
docs/explanation/pop.md tells the whole story.
"""
