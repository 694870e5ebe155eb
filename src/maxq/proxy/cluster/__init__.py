"""A proxy that runs by itself, `maxq proxy`: the same services in front of the brokers of a cluster, MaxQ's and Java's.

`controller.py` puts it together; `cluster_brokers.py` is what the services need of brokers.
"""
