"""Connected producers and consumers, queue locks, and what happens when a client falls silent.

Read `consumer_manager.py` and `producer_manager.py` (who is connected; `consumer_group_info.py` is one group), then
`housekeeping.py` (removes silent and closed clients) and `consumer_ids_notifier.py` (tells members of changes).
`member_subscriptions.py` finds members that subscribe differently. `rebalance_lock_manager.py` has the queue locks.
"""
