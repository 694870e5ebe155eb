"""Compaction topics (`cleanup.policy=COMPACTION`): of every key the newest message is kept for as long as the topic.

`compaction_store.py` has all compacted queues and the service that compacts; `compaction_log.py` is one queue,
`segment.py` one file of it, `replacement.py` how new segments take the place of old ones.
"""
