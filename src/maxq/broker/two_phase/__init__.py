"""Two-phase commit of message batches, for the pipeline's exactly-once sink (requests 30070 to 30074).

In the first phase a broker keeps requests as staged messages, which no reader sees; one record decides the batch;
in the second phase every broker delivers its part. `two_phase_batches.py` puts the parts together,
`two_phase_processor.py` answers the requests, `two_phase_service.py` writes and reads the ledger
(`batch_ledger.py`) and runs `batch_delivery.py`; `staged_record.py` has the forms of staged messages.
"""
