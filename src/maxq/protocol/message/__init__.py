"""The message: as an object, as a stored record, and the texts inside it.

`message.py` has objects and codecs, `record_layout.py` the positions in a record. `message_properties.py`,
`message_const.py`, `message_sys_flag.py`, `message_id.py` and `message_queue.py` are its parts; `compression.py` is
the body's. `pop_extra_info.py`, `recall_handle.py`, `message_trace.py` and `transaction_view.py` are what features
write into messages; `java_hash.py` is the hash that tags and keys are stored by.
"""
