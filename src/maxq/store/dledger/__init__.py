"""DLedger's file store, byte-compatible with Java's DLedgerMmapFileStore, and the broker's log in it, DLedgerCommitLog.

`ledger.py` does over a CommitLog, whose records are entries, what `protocol/dledger/ledger.py` asks of a member's log;
`entry_reader.py` reads them.
"""
