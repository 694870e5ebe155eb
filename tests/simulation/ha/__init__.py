"""Stories of a master and its slaves.

`ha_node.py` is one broker's store with its replication, `ha_group.py` three of them, `ha_faults.py` what happens to
them, `ha_ledger.py` what the outside knows; `ha_cluster_story.py` has whole servers.
"""
