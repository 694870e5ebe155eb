"""Failover in a broker group with enableSlaveActingMaster: a slave stands in for its master while that is gone.

`assembly.py` puts the parts together. `broker_group.py` decides which broker of the group is active,
`acting_master.py` follows that and starts or stops `master_only_services.py` with it. `pre_online.py` is what a
broker does before it registers; a master that comes back then takes `slave_to_master_sync.py` from its slave, whose
right to count consumer offsets is `consumer_offset_ownership.py`. `escape_bridge.py` sends to another group what
must not wait for the master. `group_api.py` and `group_processor.py` are the requests among brokers, sent and
answered.
"""
