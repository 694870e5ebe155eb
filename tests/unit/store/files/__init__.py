"""Files of a store: made ahead, let go, and on a full disk."""
