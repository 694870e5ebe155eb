"""What a broker shows to Prometheus (broker/metrics/ of RocketMQ)."""
