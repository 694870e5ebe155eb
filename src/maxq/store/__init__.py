"""The message store: the CommitLog, and what is derived from it so that messages are found again.

`message_store.py` is its face; `store_parts.py` makes the parts and joins them; `store_life.py` loads, recovers,
starts and shuts down, and switches between master and slave; `context` is what the parts share. One room for each
job:

* `files` (mapped files and their space), `log` (the CommitLog), `queue` (ConsumeQueues), `index` (IndexFiles);
* `append` (from a message to a record), `dispatch` (from a record to queue units and index entries), `read`;
* `durability` (flushes and checkpoints), `recovery` (the start, and damage), `retention` (what is deleted);
* `compaction`, `timer` and `dledger` (logs of their own), `tools` (the same files, offline and read-only).
"""
