"""`format("rocketmq")`, reading: topics as tables and streams.

`topic_source.py` is the adapter to Spark. `positions.py` and `offsets.py` say where to begin and end,
`batch_source.py` and `stream_source.py` plan a batch and a trigger (`pushdown.py`: by which conditions), `scan.py`
cuts ranges into partitions and reads one, over the wire or out of files (`files.py`). `lag.py` is how far a stream
is behind.
"""
