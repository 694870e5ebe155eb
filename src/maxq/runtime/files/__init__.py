"""Real files: `system.py` is this machine's disk; `durable_files.py` alone syncs, renames and removes durable files."""
