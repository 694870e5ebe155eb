"""What producers and consumers of a process share: routes, brokers, heartbeats."""
