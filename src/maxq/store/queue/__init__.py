"""ConsumeQueues: for each topic and queue, which record of the log is its n-th message.

Read `consume_queue.py` (units of 20 bytes), then `consume_queue_store.py` (all queues of a store).
`batch_consume_queue.py` has the queues of BatchCQ topics, `queue_kinds.py` what happens when a topic turns out to be
one, or no longer to be one, `consume_queue_ext.py` what does not fit into a unit.
`unit_scan_cy.py` walks units for a pull, `property_filter.py` filters them, `queue_loader.py` finds the queues on
disk.
"""
