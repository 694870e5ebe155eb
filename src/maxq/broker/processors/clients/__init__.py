"""What clients say about themselves and their groups: heartbeats, members, offsets, assignment of queues."""
