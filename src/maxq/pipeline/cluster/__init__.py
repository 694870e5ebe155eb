"""`format("rocketmq-cluster")`: what a cluster says of itself, as tables.

`cluster_source.py` is the adapter to Spark, `cluster_tables.py` asks for topics, queues with their offsets, and the
progress of consumer groups.
"""
