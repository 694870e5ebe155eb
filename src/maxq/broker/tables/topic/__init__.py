"""Topics: their configuration, and what follows from it.

`topic_config_manager.py` is the table (topics.json), `topic_validator.py` says which names are legal and which
belong to the system. `topic_write_states.py` tells the compiled send path what it may know of a topic,
`compaction_topics.py` the store which topics are compacted; `topic_retention.py` hides what is older or more than a
topic's attributes say.
"""
