"""Stories of whole servers and their clients: what a name server, brokers and clients promise each other.

`sim_server.py` is one machine, `broker_pair.py` a master, its slave and a name server.
"""
