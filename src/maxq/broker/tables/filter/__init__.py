"""Filters on properties that consumers registered.

`consumer_filter_manager.py` is their table (consumerFilter.json), for which dispatch makes bloom filters;
`filter_expressions.py` loads the parser and refuses invalid expressions.
"""
