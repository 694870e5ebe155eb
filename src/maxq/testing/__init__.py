"""The simulator: the shipped code in virtual time, on an in-memory network and a disk that can fail.

`run_simulation` (simulation.py) is the way in; `SimLoop`, `SimNetwork`, `SimClock`, `SimDisk` and `SimRng` are its
parts. Everything drawn comes from one seed.

server_process.py is for the other kind of test: it runs servers as processes of this machine, which can be killed.
"""
