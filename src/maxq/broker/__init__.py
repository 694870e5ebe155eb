"""The broker.

`controller.py` puts one together, starts and stops it; `bundles.py` is what its parts share. `identity` says who it
is and for whom it may answer, `admission` which requests it serves. `fast_path` handles fast-path sends, pulls and
acks in batches; `processors` handle every request, one at a time, and `longpolling` keeps those that wait. `tables`
has topics, groups, offsets and clients. One room for each feature: `pop`, `timer`, `transaction`,
`schedule_message`, `two_phase`. `slave`, `failover` and `dledger` are its roles beside other brokers; `stats` and
`metrics` what operators see; `assembly` what the controller needs beside them.
"""
