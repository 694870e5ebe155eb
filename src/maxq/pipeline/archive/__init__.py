"""Archives: folders of data files with a manifest that says which messages are in which file.

ranges.py      arithmetic of offset ranges (pure)
manifest.py    entries of files, and what a set of them covers (pure)
folder.py      the folder: the manifest's versions, runs, data files
file_stats.py  a Parquet file → its entry
coverage.py    what brokers have against what an archive has
"""
