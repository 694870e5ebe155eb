"""The blocking classes: the asynchronous ones on an event loop in a thread (`loop_thread.py`)."""
