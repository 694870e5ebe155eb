"""The CommitLog: the records of all topics, one after the other.

Read `commit_log.py` (the files), `log_cy.py` (`LogTail`, which writes records at the end) and `record_cy.py` (the
scanner of records, with their layout). `write_buffer.py` holds records until one write brings them to the file;
`tails_cy.py` has the writing ends of queues and index; `deletions.py` knows where in the log topics were deleted;
`log_search.py` searches it.
"""
