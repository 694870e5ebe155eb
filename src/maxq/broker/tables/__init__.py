"""The tables of a broker: topics, groups, offsets, and who is connected.

`persistent_manager.py` is a table that is a JSON file below config/; nearly all are. `attributes.py` has the known
attributes of topics and groups, `row_json.py` the JSON of rows, kept from one body to the next. A room for each table:
`topic`, `static_topic` (queues that move between broker groups), `subscription` (groups), `offset`, `client` (connected
producers and consumers, queue locks) and `filter`.
"""
