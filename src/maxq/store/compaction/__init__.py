"""Compaction topics (`cleanup.policy=COMPACTION`): of every key the newest message is kept for as long as the topic."""
