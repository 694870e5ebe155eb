"""The blocking clients: the asynchronous ones on an event loop in a thread.

`sync.py` has the classes; `face.py` makes their methods from the asynchronous ones, which `calls.py` lists.
`loop_thread.py` is the thread.
"""
