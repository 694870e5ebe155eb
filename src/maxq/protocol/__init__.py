"""RocketMQ's protocol as pure functions of bytes: no sockets, files, clocks or chance.

`frame` (remoting frames and the compiled scanners of requests), `header` and `body` (fields and JSON bodies of
requests), `message` (the message and its properties), `json` (fastjson's dialect), `dledger` (DLedger's frames).
"""
