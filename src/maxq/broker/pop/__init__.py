"""Pop consumption: the broker keeps the cursor, hides what it gave away, and gives it again if nobody acknowledges."""
