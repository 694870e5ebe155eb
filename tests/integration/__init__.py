"""Tests with real sockets, disks, clocks or processes.

`processes` starts and joins servers as processes; `torture` has the long campaigns that kill them and `kills` their
short forms and other scenes with kills; `soak` has those who come and go for long. The other rooms are named for what
they test.
"""
