"""Who may do what: signatures, users, policies, white lists. Values in, decisions out; no files, clocks or sockets."""
