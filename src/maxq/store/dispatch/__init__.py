"""From a range of the log to queue units and index entries.

`dispatcher.py` is called for appended records, for records that recovery finds undispatched, and for records that a
slave received; `dispatch_cy.py` does it without a Python object for each record. `queue_offset_resolver.py` decides
where a record belongs whose queue offset is not the next one. `record_units.py` says, without any queue, what an
unusual record leaves; repairs and Spark's rebuild go by it, too.
"""
