"""The broker.

`controller.py` puts one together, starts and stops it; `bundles.py` is what its parts share. `identity` says who it
is and for whom it may answer. `fast_path` handles plain sends, pulls and acks in batches; `processors` handle every
request, one at a time. One room for each table (`topic`, `subscription`, `offset`, `client`) and for each feature
(`pop`, `timer`, `transaction`, `schedule_message`, `staged`, `static_topic`, `quota`, `filter`, `longpolling`).
`slave`, `acting` and `dledger` are its roles beside other brokers; `stats` and `metrics` what operators see;
`assembly` what the controller needs beside them.
"""
