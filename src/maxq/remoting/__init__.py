"""RocketMQ's remoting: connections, servers, clients, TLS.

`connection.py` is one connection of a server, `endpoint.py` what a server does with its requests, `server.py` the
listening socket, `batched_reads.py` many connections read together, `client.py` the client's side. `tls.py` and
`tls_channel.py` encrypt; `proxy_protocol.py` believes a proxy about addresses; `http_server.py` serves pages for
operators.
"""
