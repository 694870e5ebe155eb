"""Records of the log as Arrow columns.

`schemas.py` is the contract of columns. `record_batches.py` scans records and fills columns (`arrow_cy.py`);
`row_filter.py` decides conditions before that. `losses.py` is the one rule for what a read was to give and does
not.
"""
