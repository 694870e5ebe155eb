"""Records of the log as Arrow columns.

`record_batches.py` scans records and has columns made of them (`maxq/arrow`); `row_filter.py`, on the scanner's table
and with `places_cy.py`, decides conditions before that. `losses.py` is the one rule for messages that a read should
have returned and did not.
"""
