"""`format("rocketmq")`, writing."""
