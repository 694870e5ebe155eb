"""What a header field means to HTTP/2 and gRPC. Modules that run compiled take these from field_kinds.pxd.

A field is examined once, when it is read; one that the peer's table keeps is never examined again.
"""

(
    K_OTHER,
    K_METHOD,
    K_SCHEME,
    K_PATH,
    K_AUTHORITY,
    K_CONTENT_TYPE,
    K_CONTENT_LENGTH,
    K_TE,
    K_GRPC_TIMEOUT,
    K_GRPC_ENCODING,
    K_MALFORMED,  # a name or value with characters that may not be there, a pseudo field that no request has
) = range(11)

#: Names whose fields have a kind of their own. Fields of a connection of HTTP/1 are malformed in HTTP/2.
KINDS = {
    ":method": K_METHOD,
    ":scheme": K_SCHEME,
    ":path": K_PATH,
    ":authority": K_AUTHORITY,
    "content-type": K_CONTENT_TYPE,
    "content-length": K_CONTENT_LENGTH,
    "te": K_TE,
    "grpc-timeout": K_GRPC_TIMEOUT,
    "grpc-encoding": K_GRPC_ENCODING,
    "connection": K_MALFORMED,
    "keep-alive": K_MALFORMED,
    "proxy-connection": K_MALFORMED,
    "transfer-encoding": K_MALFORMED,
    "upgrade": K_MALFORMED,
}
