"""Deletion of old messages, and hiding of messages until they can be deleted.

`clean.py` deletes files by age, disk use or request; `hidden_messages.py` hides messages of topics whose retention
is shorter than the log's. `trusted_time.py` is the clock they go by, which does not follow a wall clock that jumps
ahead.
"""
