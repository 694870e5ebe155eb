"""TLS of servers and clients.

`contexts.py` makes contexts from settings and files and watches these; `tls_channel.py` is one connection's half of
it; `self_signed.py` is the certificate of test mode.
"""
