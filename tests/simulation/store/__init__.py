"""Stories of one store: it lives, dies in some way, has a bit flipped or its disk fail, and starts again.

`store_world.py` makes the store, `workload.py` uses it, `ledger.py` knows what was acknowledged, `crash_story.py`
joins them.
"""
