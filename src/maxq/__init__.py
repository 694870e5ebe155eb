"""MaxQ: Apache RocketMQ's message broker rebuilt in Python."""
