"""Messages and what stands in them: records, properties, ids, compression.

`naive_record.py` reads a record in the simplest way.
"""
