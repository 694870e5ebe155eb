"""Admission control: which requests a broker serves now, which it delays, and which it refuses.

`access.py` builds the broker's access control. `fast_failure.py` refuses requests that have waited too long, and limits
the number of unfinished ones. `quotas.py` knows who is above its bytes or messages per second: `quota.py` is one
topic's, group's or user's, a token bucket. Whether the store takes a message is asked in the store
(`store/append/append_admission.py`).
"""
