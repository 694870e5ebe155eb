"""`format("rocketmq-cluster")`: topics, offsets and consumer groups as tables."""
