"""Rows that are not in memory: chunks, and Parquet files."""

# May import: kernax.core.
