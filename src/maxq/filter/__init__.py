"""Filter expressions of subscriptions: SQL92 compiled to predicates over a record's properties.

`languages.py` says which there are. `sql92.py` parses a text, `expressions.py` says what is legal and builds the
predicate (`predicates_cy.py`, of nodes in `nodes_cy.py` and `comparisons_cy.py`, which compare as `java_values.py`
says). `bloom_filter.py` is what dispatch asks first.
"""
