"""The rebuild: ConsumeQueues and IndexFiles made anew from the log by Spark, byte for byte a broker's.

`job.py` → `log_dispatch.py` (what one piece of the log leaves) → `plan.py` (whether pieces fit together) →
`files.py` (the files). `index_tags.py` finds out whether the index has tags.
"""
