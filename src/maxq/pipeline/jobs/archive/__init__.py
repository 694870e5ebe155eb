"""The archive: messages of topics in Parquet files with a manifest.

`job.py` writes it, once or as a stream; `compact.py` makes few files of many, `verify.py` proves that nothing is
missing, `table.py` copies it into a table of another format.
"""
