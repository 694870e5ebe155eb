"""Java's brokers and ours as master and slave, and in one DLedger group."""
