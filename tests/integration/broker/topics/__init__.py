"""What becomes of a topic: deletion, retention, compaction, queues that move to another broker."""
