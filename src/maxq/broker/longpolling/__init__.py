"""Long polling: requests that found no message and wait for one.

`pull_request_hold_service.py` holds pulls, `pop_long_polling.py` pops and notifications; both are told by the
store's dispatch in which queues messages arrived.
"""
