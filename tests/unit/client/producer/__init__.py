"""Producers: sends, tries, batches, and what is learnt from slow brokers."""
