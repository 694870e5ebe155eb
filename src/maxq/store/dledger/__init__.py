"""DLedger's file store, byte-compatible with Java's DLedgerMmapFileStore, and the broker's log in it, DLedgerCommitLog.

`interfaces.py` is what a member's driver and the Raft core see; `ledger.py` does it over a CommitLog whose records are
entries; `memory_store.py` does it without files.
"""
