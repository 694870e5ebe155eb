"""Requests that come in great numbers, handled in batches without a Python object for each.

`batch_path.py` takes the leading run of frames of an arrival: fast-path sends (`send_path.py`), repeated pulls
(`pull_path.py` and `pull_answers_cy.py`), messages given back (`send_back_path.py`), acks of pops (`ack_path.py`) and
ends of transactions (`end_path.py`). Unusual requests are left to the processors.
"""
