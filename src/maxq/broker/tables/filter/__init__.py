"""Filters on properties: `consumer_filter_manager.py` is the table of those that consumers registered;
`filter_expressions.py` compiles one and applies it to a pull.
"""
