"""The services of RocketMQ's proxy: what gRPC clients ask, answered by requests to brokers.

`services.py` is the table of calls; `context.py` is one of them, and who makes it. Producers: `producer` (sends and
recalls, over `message_codec.py`), `transactions.py`. Consumers: `receiving.py`, `receipts.py` (acks, other invisible
times, dead letters; over `handles.py`), `renewal.py`; `pulling.py` for those that keep offsets. All: `routes.py`,
`telemetry.py` (settings, heart-beats, what brokers ask a client). `clients.py` keeps who is there, `brokers.py` says
what is needed of brokers, `loopback.py` connects to one in this process, `cluster` is a proxy by itself.
`validation.py` and `statuses.py` are rules and codes.

Source:
    the packages grpc.v2, processor and service of RocketMQ's module proxy.
"""
