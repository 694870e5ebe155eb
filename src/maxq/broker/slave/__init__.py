"""A slave's copies of its master's tables, and the change between master and slave.

`role_service.py` follows the role: as a slave it runs `slave_synchronize.py`, which asks through `master_api.py`
and keeps the files of `replicated_config_files.py` beside the tables. `master_loss_listener.py` is what ends with the
master's process.
"""
