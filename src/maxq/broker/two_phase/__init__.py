"""Staged messages: kept where no reader sees them until the batch they belong to is committed (the pipeline's sink)."""
