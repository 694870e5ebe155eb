"""The commands for users and operators of one server: servers, messages, stores, timers, transactions, DLedger
groups.
"""
