"""Stories of pop consumption: nothing is lost, and nothing acknowledged comes again."""
