"""From a message to a record at the end of the log.

`append_admission.py` says whether anything may be stored. `fast_path_writer.py` appends batches of messages without a
Python object for each (`log_rows_cy.py`, `log_final_cy.py`, `record_copy_cy.py`); `message_writer.py` appends any
message. The steps after an append are in `append_propagation.py`. `replica_append.py` is a slave's: bytes of its
master, each record verified before it counts.
"""
