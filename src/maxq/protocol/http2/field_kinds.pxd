# The compiled form of field_kinds.py: the same names, as constants.
cdef enum:
    K_OTHER
    K_METHOD
    K_SCHEME
    K_PATH
    K_AUTHORITY
    K_CONTENT_TYPE
    K_CONTENT_LENGTH
    K_TE
    K_GRPC_TIMEOUT
    K_GRPC_ENCODING
    K_MALFORMED
