"""Send rows: what protocol/send_scanner_cy reads of fast-path sends, and store/log_rows_cy appends. One row of int64 a
request. Modules that run compiled take the columns and bits from send_rows.pxd, as constants.

Positions are byte positions in the receive buffer; R_PROPERTIES is one in the scratch buffer if F_SCRATCH is set.
R_PHYSICAL_OFFSET (of the first record), R_QUEUE_OFFSET (of the first), R_SIZE (bytes of log) and R_COUNT (records) are
filled in by the append.
"""

ROW_WIDTH = 20
(
    R_FLAGS,
    R_OPAQUE,
    R_TOPIC,
    R_TOPIC_SIZE,
    R_QUEUE_ID,
    R_SYS_FLAG,
    R_BORN_TIMESTAMP,
    R_FLAG,
    R_PROPERTIES,
    R_PROPERTIES_SIZE,
    R_BODY,
    R_BODY_SIZE,
    R_RECONSUME_TIMES,
    R_PHYSICAL_OFFSET,
    R_QUEUE_OFFSET,
    R_SIZE,
    R_COUNT,
    R_UNIQUE,
    R_UNIQUE_SIZE,
    R_FRAME,
) = range(20)

#: Bits of R_FLAGS.
F_SCRATCH = 1  # properties are in the scratch buffer, not in the source
F_ONEWAY = 2
F_BINARY = 4  # header serialization ROCKETMQ
F_BATCH = 8  # body is a batch (MessageDecoder.encodeMessages)
F_NO_WAIT = 16  # WAIT=false: the answer does not wait for the disk
F_HALF = 32  # opens a transaction: the record goes to the half topic (broker/transaction/half_message.py)

#: Columns of the table of arrivals that one turn of the loop has received (remoting/batched_reads.py).
ARRIVAL_WIDTH = 5
(
    A_START,  # start of its bytes in the buffer
    A_END,
    A_TAKEN,  # start of its first frame that was not taken
    A_FIRST,  # row of the first frame that was taken
    A_ROWS,  # number of frames that were taken
) = range(5)

#: Columns of the table of what sends were signed with (`SendScanner.signed_rows`): one row for each row of the scan.
SIGNED_WIDTH = 6
(
    S_CONTENT,  # start of the signed values in `content`
    S_CONTENT_SIZE,
    S_ACCESS_KEY,  # … the access key in the receive buffer; 0 and 0 if there is none
    S_ACCESS_KEY_SIZE,
    S_SIGNATURE,
    S_SIGNATURE_SIZE,
) = range(6)
