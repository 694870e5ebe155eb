"""The commands of the data pipeline: `maxq pipeline …` and `maxq sql`."""
