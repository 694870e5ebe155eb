"""Records of the log as Arrow columns, and conditions on them."""
