"""The administration client: `admin.py` has the parts, one module for each noun, one coroutine for each request."""
