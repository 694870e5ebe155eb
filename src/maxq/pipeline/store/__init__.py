"""`format("rocketmq-store")`: store directories as tables, the broker up or down.

`store_source.py` is the adapter to Spark. `store_folder.py` reaches a directory, `arrow_disk.py` one behind a URI;
`log_pieces.py` cuts the log into pieces, `store_tables.py` has the tables beside the messages. `own_topics.py` tells
which topics belong to the broker itself. `retention.py` computes whether the disk is large enough for the messages that
must be kept.
"""
