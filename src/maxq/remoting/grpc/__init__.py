"""gRPC over HTTP/2, the server's side.

`calls.py` is what services use: methods and calls (`call_cy.py`), and how calls end (`status.py`). `server.py`
listens; `connection.py` is one connection: first bytes, TLS, what it holds. The frames below are `maxq.protocol.http2`.
"""
