"""Permissions: signatures, users, policies, white lists. Values in, decisions out; no files, clocks or sockets.

Read `signature.py` and `signing_cy.py` (what is signed, and how), `user.py`, `resource.py` and `policy.py`,
`needs.py` (the table of what each request touches), then `policy_judge.py` (ACL 2.0) and `plain_judge.py` (ACL 1.0;
its accounts are in `plain_acl.py`); `judge.py` is what the two share. `tables.py` has users and policies,
`manual.py` makes docs/reference/requests.md.
"""
