"""mqadmin and access control, on servers of both sides."""
