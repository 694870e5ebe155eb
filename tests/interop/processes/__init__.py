"""Servers of both sides as processes, Java and C++ clients, mqadmin: where they come from, how they are driven."""
