"""Clock, disk and chance: their interfaces (interfaces.py), and the real ones (files/system.py)."""
