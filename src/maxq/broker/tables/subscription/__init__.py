"""Subscription groups: `subscription_group_manager.py` is the table of their configuration (subscriptionGroup.json)."""
