"""DLedger's driver: one member of a group on the running loop.

`dledger_server.DLedgerServer` gives the core (replication/raft) its time, its connections (`peer_link`) and a store
(store/dledger), and does what the core wants done. `client_requests` is what others than members may ask.
"""
