"""The messages of DLedger's members to each other."""
