"""Results of calls of the client library, and of listeners.

`send_result.py`, `pull_result.py` and `pop_result.py` are for those who call; `consume_result.py` and
`local_transaction_state.py` are what an application's listeners return. `arrow_batches.py` makes the tables
of `poll_arrow`.
"""
