"""Copies of a log on other machines.

`ha` is master and slave over the classic link. `raft` is the core of DLedger, pure: messages and times in, messages
out; `dledger` drives it with sockets, clocks and files.
"""
