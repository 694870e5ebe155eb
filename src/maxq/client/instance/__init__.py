"""The parts that all producers and consumers with one client id share.

`mq_client.py` has the connections, heartbeats and timers; `client_api.py` each request as a typed coroutine,
`pull_api.py` and `pop_api.py` those of consumers. `topic_routes.py`, `topic_publish_info.py` and `broker_table.py`
say where topics and brokers are, `broker_watch.py` which brokers stand still. `server_requests.py` answers what
brokers ask of clients.
"""
