"""Options of sources and sinks, parsed and checked.

`read_options.py` and `write_options.py` are those of the formats, `option_values.py` reads a single one;
`predicate.py` is the option by which a reader narrows what it reads.
"""
