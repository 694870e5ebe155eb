"""Messages as Arrow columns, both ways, for the client and the pipeline. pyarrow is needed here, and nowhere below.

Out of records: `schemas.py` is the contract of columns, `columns_cy.py` fills them. Into records: `sink_columns.py`
says which columns make a message, `row_encoder.py` (with `batch_encode_cy.py`) sorts rows by where they go and encodes
them as bodies of batches.
"""
