"""IndexFiles: from a message key to places in the log.

Read `index_file.py` (one file: header, hash slots, entries), then `index_service.py` (all of them: put and query).
`index_flusher.py` makes full files durable.
"""
