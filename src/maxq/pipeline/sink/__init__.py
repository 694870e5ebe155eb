"""`format("rocketmq")`, writing.

`writers.py` is the adapter to Spark. `sink_columns.py` → `row_encoder.py` (`batch_encode_cy.py`) → `sender.py` are
a task's rows on their way to brokers, put together in `sink_task.py`; `sink_commit.py` is the driver's part of
exactly once.
"""
