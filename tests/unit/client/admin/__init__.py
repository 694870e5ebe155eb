"""What the admin client works out from the answers of several brokers."""
