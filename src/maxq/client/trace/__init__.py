"""Message trace, in RocketMQ's form.

`hooks.py` makes records of sends, ends of transactions and listener calls; `async_trace_dispatcher.py` sends them
in the background. `opentelemetry.py` makes spans of the same events.
"""
