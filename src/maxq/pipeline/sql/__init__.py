"""SQL over topics and stores.

`views.py` makes every topic, the cluster's own tables and the tables of a store directory views of a Spark session,
and says which of them a query uses.
"""
