"""Files of fixed size that are mapped into memory, and the disk space below them.

Read `mapped_file.py`, then `mapped_file_queue.py` (a run of files as one sequence of bytes). `file_allocator.py`
makes the next file ahead of the writer, `block_reserve.py` gives it blocks, `page_populator.py` gives it memory.
`disk_room.py` says whether there is room, `executor_jobs.py` what runs on threads, `store_inventory.py` what the
store held at its last flush.
"""
