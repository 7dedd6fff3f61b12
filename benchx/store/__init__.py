"""Run folders: write-ahead records, samples, Parquet."""
