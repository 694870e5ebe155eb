"""Offline tools: read a store directory without its broker, and without ever writing to it.

store_files    what files there are, of which sizes
log_walk       the log, record by record, over damage
message_lines  a record as the line or JSON object that `maxq store messages` prints; text_lines_cy makes the lines
expectation    what a record should have left in queues and index: a second implementation of dispatch
queue_files    ConsumeQueue files, read
index_files    IndexFiles, read
offsets        first and next offset of every queue
check*         log, queues, index, checkpoint and settings files against each other
recover        what the broker does at start, and `rehearse`: the same on a copy, compared with the original
"""
