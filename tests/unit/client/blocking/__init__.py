"""The blocking faces of the asyncio classes, and their stub, which `blocking_stubs.py` writes."""
