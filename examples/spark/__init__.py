"""Programs for PySpark. `python -m examples.spark.NAME` runs one at the server that NAMESRV_ADDR names."""
