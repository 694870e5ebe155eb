"""Name servers and brokers as driver and executors reach them, without an event loop."""
