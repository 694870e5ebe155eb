"""The client library without this machine's clock, disk and chance, which `maxq.api` fills in.

`producer`, `consumer` and `admin` are what applications use, `blocking` the same for programs without an event loop,
`results` what calls give back. `instance` is what all clients of one process share: connections, routes, requests.
`trace` records what was sent and consumed. Settings are in `client_config.py`.
"""
