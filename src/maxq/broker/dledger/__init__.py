"""A broker as member of a DLedger group (enableDLegerCommitLog): the group elects which of its brokers is master.

`quorum_acknowledgement` lets sends wait for the group; `dledger_broker` is the broker's member and stands where
HAService stands otherwise; `role_changes` makes the broker what its member became.
"""
