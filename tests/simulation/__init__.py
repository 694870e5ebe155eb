"""Stories in virtual time: shipped code on a simulated disk, network and clock, everything drawn from one seed.

`campaign.py` tells many seeds of every kind; a seed that failed once stands in `regressions/`, in the file of its
kind, and is told again by every run of the tests. `mutations.py` plants bugs that the stories must notice. The rooms,
in the order in which they are understood best: `store` (one store), `waiting` (delayed and timed messages),
`transactions`, `pop`, `ha` (a master and its slaves), `dledger`, `servers` (whole servers with their clients), `raft`
(the pure core of DLedger).
"""
