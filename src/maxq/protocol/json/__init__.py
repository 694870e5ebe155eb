"""JSON as RocketMQ's fastjson reads and writes it.

`json_dialect.py` is text to values and back, `json_body.py` makes dataclasses of them by their annotations.
"""
