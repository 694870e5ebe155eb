"""Stories of transactions: each ends once, as its producer said, whatever the broker goes through."""
