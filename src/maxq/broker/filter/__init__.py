"""Filters on properties: what consumers registered, and how a pull or a dispatch applies it."""
