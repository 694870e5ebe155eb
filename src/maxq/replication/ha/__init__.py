"""Master and slave: the classic HA link.

Read `frames.py` (the bytes), `ha_connection.py` (what a master knows of one slave) and `ha_client.py` (a slave's
side), which are pure; `ha_connection_link.py` and `ha_client_service.py` put them on transports;
`group_transfer.py` says who waits for how many copies. `ha_service.py` is all of it together. `full_copy.py` and
`flow_monitor.py` belong to the link; `log_maintenance.py` looks after the bytes of the log (`scrub.py`,
`repair.py`, `log_fetch.py`). `log_mark.py` tells two logs apart where no link can compare them.
"""
