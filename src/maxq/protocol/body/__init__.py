"""JSON bodies of requests, answers and table files: a dataclass each, in modules by subject.

`data_version.py` is in most of the tables. Nothing is imported here, for a command needs few of them.
"""
