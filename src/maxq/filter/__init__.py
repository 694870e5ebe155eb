"""Filter expressions: SQL92 compiled to predicates over a record's properties, and the bloom filter of dispatch."""
