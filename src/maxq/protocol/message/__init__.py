"""The message: bytes of a record and object, properties, ids, flags, compression, trace records, handles of pop and
recall.
"""
