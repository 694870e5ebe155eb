"""The administration client: what operators ask name servers and brokers.

`admin.py` has the parts, each imported when it is used: one module for each noun, one coroutine for each request.
`context.py` is what the parts share. `static_topic_plan.py` and `global_progress.py` are the arithmetic of static
topics.
"""
