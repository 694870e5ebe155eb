"""Pop consumption: messages are given, hidden, acknowledged and given again."""
