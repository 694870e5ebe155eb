# The compiled form of send_rows.py: the same names, as constants of the modules that read and write rows.
cdef enum:
    ROW_WIDTH = 20

cdef enum:
    R_FLAGS
    R_OPAQUE
    R_TOPIC
    R_TOPIC_SIZE
    R_QUEUE_ID
    R_SYS_FLAG
    R_BORN_TIMESTAMP
    R_FLAG
    R_PROPERTIES
    R_PROPERTIES_SIZE
    R_BODY
    R_BODY_SIZE
    R_RECONSUME_TIMES
    R_PHYSICAL_OFFSET
    R_QUEUE_OFFSET
    R_SIZE
    R_COUNT
    R_UNIQUE
    R_UNIQUE_SIZE
    R_FRAME

cdef enum:
    F_SCRATCH = 1
    F_ONEWAY = 2
    F_BINARY = 4
    F_BATCH = 8
    F_NO_WAIT = 16
    F_HALF = 32

cdef enum:
    ARRIVAL_WIDTH = 5

cdef enum:
    A_START
    A_END
    A_TAKEN
    A_FIRST
    A_ROWS

cdef enum:
    SIGNED_WIDTH = 6

cdef enum:
    S_CONTENT
    S_CONTENT_SIZE
    S_ACCESS_KEY
    S_ACCESS_KEY_SIZE
    S_SIGNATURE
    S_SIGNATURE_SIZE
