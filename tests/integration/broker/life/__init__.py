"""A broker's life: registration, tasks from time to time, restarts, clocks that are off, clients that hang."""
