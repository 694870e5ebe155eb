"""One-page HTML reports: `page` makes the page, `plots` the drawings, `quantities` the numbers with their units."""
