"""The blocking clients: the asynchronous ones on an event loop in a thread.

`sync.py` and `consumers.py` have the classes, `started.py` what they share; `face.py` makes their methods from the
asynchronous ones, which `calls.py` and `consumer_calls.py` list.
`loop_thread.py` is the thread.
"""
