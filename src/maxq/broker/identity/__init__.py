"""The identity of a broker: its name and role, its registration, and what it may promise for its group.

`broker_identity.py` and `role.py` (name, id, role), `store_owner.py` (whose store it is), `registration.py` and
`outer_api.py` (name servers and other brokers), `authority.py` (which answers it may give at this moment).
"""
