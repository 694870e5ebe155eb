"""Consumers: the queues that a member of a group reads, the messages that it holds, and its progress.

`push_consumer.py` calls a listener, `lite_pull_consumer.py` gives messages to `poll`, `simple_consumer.py` pops and
acknowledges; the first two share `group_consumer.py`. Shares of queues: `rebalance.py` (pure) and
`rebalance_impl.py`. Messages between pull and commit: `held/`, `flow_control.py`. Listener calls:
`consume_concurrently.py`, `consume_orderly.py`, `consume_pop.py` over `listener_caller.py`. Progress:
`offset_store.py`.
"""
