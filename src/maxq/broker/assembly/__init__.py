"""The broker's parts that work across the others: `broker/controller.py` puts all together.

`features.py` lists what deals with one kind of message each, `operations.py` shows metrics and limits users,
`schedule.py` is what runs periodically.
"""
