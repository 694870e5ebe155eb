"""Long campaigns that kill servers under load (`make torture`).

Each module is a command; `tests/integration/kills` runs short forms.
"""
