"""`format("rocketmq")`, reading: topics as tables and streams."""
