"""The seams: Clock, Disk, MappedRegion and Rng (interfaces.py), and the real ones (system.py)."""
