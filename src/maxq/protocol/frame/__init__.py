"""Remoting frames.

`remoting_command.py` decodes and encodes one frame (JSON and ROCKETMQ headers). `frame_scanner_cy.py` scans many in a
receive buffer; on it stand `send_scanner_cy.py` (fast-path sends → rows of `send_rows.py`) and
`request_scanners_cy.py`. `replies_cy.py` writes many answers into one buffer. `body_limits.py` and `answer_limits.py`
bound what is accepted and answered.
"""
