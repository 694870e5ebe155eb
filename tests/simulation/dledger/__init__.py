"""Stories of DLedger groups: whole brokers that elect their leader, and the files of one member (`ledger_story.py`)."""
