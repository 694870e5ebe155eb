"""What calls of the client library give back, and what listeners answer."""
