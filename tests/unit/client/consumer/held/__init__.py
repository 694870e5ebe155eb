"""What consumers hold between pull and commit, in both forms."""
