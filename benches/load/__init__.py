"""The load generator, `python -m benches.load`: what it sends, how it counts, and the options (`__main__.py`).

It measures what a broker does, not what a client library does: frames are encoded before the clock starts, sockets are
raw, and none of the broker's codec runs while it is timed. Its own CPU use is part of every result. Read `workloads.py`
(what is measured), `measure.py` (one measurement), `worker.py` and `connections.py` (what each process does),
`frames.py` (the bytes), `histogram.py`, `request.py` (single requests before and after).
"""
