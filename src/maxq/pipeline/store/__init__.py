"""`format("rocketmq-store")`: store directories as tables."""
