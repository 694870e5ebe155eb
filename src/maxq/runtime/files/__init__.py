"""Files: the real ones, and the one place that changes durable ones.

`system.py` is this machine's clock, disk and chance, `plain_files.py` what clients have of a disk on Windows.
`durable_files.py` alone syncs, renames, truncates and removes durable files, `kernel_sync.py` syncs without a thread.
`config_manager.py` is a table in a small file with its predecessor beside it. `overlay_disk.py`, `file_holes.py` and
`ring_memory.py` are special kinds of files and memory.
"""
