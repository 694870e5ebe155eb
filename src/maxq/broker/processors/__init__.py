"""One processor for each kind of request: `send`, `pull`, `clients` (heartbeats, groups, offsets) and `admin`.

`assembly.py` is the table from request code to processor; `support.py` and `refusal.py` are what they share, and
`acknowledgement.py` says when a producer may be told that its message is safe. Codes that this broker does not
serve are answered in `assembly.py`, too.
"""
