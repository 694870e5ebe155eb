"""`format("rocketmq")`, writing.

`writers.py` is the adapter to Spark. A task's rows become bodies of requests (maxq.arrow), which `sender.py` sends;
`sink_task.py` puts this together. `sink_commit.py` is the driver's part of exactly once.
"""
