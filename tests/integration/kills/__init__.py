"""What is left after servers are killed or restarted: short forms of the tortures, and single scenes."""
