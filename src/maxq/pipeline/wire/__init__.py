"""Name servers and brokers as driver and executors reach them: blocking, without an event loop.

`connection.py` is one connection, `wire_client.py` the cluster. `wire_reader.py` yields what a task reads, with
`pulls.py`, which reads one range (`queue_range.py`) through whatever happens meanwhile.
"""
