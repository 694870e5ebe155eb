"""Consumer offsets: how far each group is in each queue.

`consumer_offset_manager.py` is the table, with `offset_table.py` (as files and answers have it; its index by group
and topic; pages of it for a slave); `lmq_consumer_offset_manager.py` is the one of brokers with light queues.
`slave_commits.py` keeps what was committed at a slave for its master.
"""
