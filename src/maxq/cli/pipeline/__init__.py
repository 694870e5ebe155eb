"""The commands of the data pipeline: `maxq pipeline …` and `maxq sql`.

`group.py` is the table of commands; one module for each job of `maxq.pipeline.jobs`. `spark_run.py` is the session,
the progress bar and the errors of all; `common.py` and `report_input.py` are options that several share.
"""
