"""When bytes become durable, and what is known about it.

`flush.py` is the group commit of the log. `consume_queue_flusher.py` flushes queues and writes `store_checkpoint.py`.
`log_marks.py` says up to where the log can no longer be lost.
"""
