"""Clusters of DLedger cores in one thread, under a seed."""
