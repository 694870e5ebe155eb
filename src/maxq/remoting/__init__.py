"""RocketMQ's remoting: connections, servers, clients, TLS; and gRPC's connections.

`connection.py` is one connection of a server, `endpoint.py` what a server does with its requests, `server.py` the
listening socket, `batched_reads.py` many connections read together, `client.py` the client's side. `first_bytes.py`
tells what a connection begins, `tls` encrypts, `proxy_protocol.py` believes a proxy about addresses; `grpc` is the
server for clients of 5.x, `http_server.py` serves pages for operators.
"""
