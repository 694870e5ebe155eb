"""Producers: from an application's message to a stored one.

`producer.py` → `message_preparer.py` (name, id, checks, compression: once for all tries) → `message_sender.py`
(choice of a queue, request, retries). `latency_fault.py` keeps away from slow brokers, `produce_accumulator.py` makes
batches, `transaction_producer.py` sends half messages and ends them.
"""
