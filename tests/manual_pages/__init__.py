"""Pages of the manual that are made from the source: `python -m tests.manual_pages` writes them, a test compares."""
