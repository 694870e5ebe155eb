"""Custom header fields of requests and answers, a dataclass each, in modules by subject.

Here are those that are made or read as a whole. Fields of other requests are read one by one where they are served
(`HeaderFields` of protocol/frame/header_fields.py).
"""
