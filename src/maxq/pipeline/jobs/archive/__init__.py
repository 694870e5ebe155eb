"""The archive: messages of topics in Parquet files with a manifest, compaction of the files, verification."""
