"""The pipeline on Java's servers."""
