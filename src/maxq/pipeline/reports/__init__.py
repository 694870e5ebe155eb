"""One-page HTML reports.

`page.py` makes the page (`page_style.py`), `plots.py` the drawings, `quantities.py` the numbers with their units;
`stats_report.py` and `trace_report.py` are the pages of two jobs.
"""
