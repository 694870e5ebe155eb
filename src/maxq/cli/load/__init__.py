"""The load generator behind `maxq bench`.

It measures what a broker does, not what a client library does: frames are encoded before the clock starts, sockets are
raw, and none of the broker's codec runs while it is timed. Its own CPU use is part of every result.
"""
