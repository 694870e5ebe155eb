"""Pulls and queries.

`pull_message.py` → `pull_checks.py`, `pull_subscription.py`, `pull_read_rules.py` (may this be read, from where) →
the read → `deferred_replies.py` where a quota or the disk comes between. `query_message.py` finds messages by key and
id.
"""
