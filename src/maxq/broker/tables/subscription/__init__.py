"""Subscription groups.

`subscription_group_manager.py` is the table of their configuration (subscriptionGroup.json), which creates a group
when it is first used and tells listeners when one is deleted.
"""
