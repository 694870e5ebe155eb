"""HTTP/2 of a server (RFC 9113), sans-IO.

`field_kinds.py` says what header fields mean to the protocol, `hpack_cy.py` (with `hpack_tables.py`) reads and writes
their compressed form (RFC 7541), `connection_cy.py` is the frames, streams and flow control of one connection.
"""
