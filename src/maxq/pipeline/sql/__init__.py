"""Views of topics and stores, and what of them a query uses."""
