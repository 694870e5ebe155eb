"""Access to the outside world and to the event loop, for every layer above.

`interfaces.py` has Clock, Disk, Rng and MappedRegion; `system_clock.py` the real clock and chance; `files` and
`metrics` are rooms of their own. `blocking.py` takes work off the loop, `background.py` and `periodic.py` run tasks
on it, `turns.py` cuts long work, `holds.py` finds what held it up. `refusals.py` is the form of every "not now".
`bounded_cache.py`, `log_limits.py` and `passed_over.py` keep others from using up memory, log lines or a service.
`buffers.py` and `cython.py` serve the compiled modules.
"""
