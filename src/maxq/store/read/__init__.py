"""Reading messages: by queue offset, by time and by key.

`message_reader.py` reads queues over the log; `topic_reader.py` chooses between it and a compacted topic's own log.
`cached_pull_reader_cy.py` answers repeated pulls out of memory; `gather_cy.py` copies records together for readers
that ask for much.
"""
