"""Transactions: half messages, their end, and the question to producers that did not say.

`transactions.py` puts the parts together. `end_transaction.py` answers the request;
`transactional_message_service.py` commits, rolls back and gives up, and `transactional_message_check_service.py`
walks over what is open and asks. `op_messages.py` keeps on disk which half messages are finished
(`transaction_ledger.py` is that in memory), `commit_recovery.py` finds what a crash left between commit and op
message. `half_message.py` has the forms.
"""
