"""Delay levels: messages that wait in SCHEDULE_TOPIC_XXXX, one queue a level, until they are due."""
