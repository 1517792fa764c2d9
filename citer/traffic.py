"""Served answers as Parquet files, from which `prepare` makes training rows."""
