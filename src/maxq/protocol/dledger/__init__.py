"""DLedger's frames, and the contract of a member's log.

`ledger.py` is what driver and core of DLedger see of a log. `dledger_messages.py` are requests and answers between
members, `dledger_codec.py` and `dledger_json.py` their bytes.
"""
