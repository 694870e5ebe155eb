"""Write the pages."""

from tests.manual_pages.pages import PAGES

for page, render in PAGES.items():
    page.write_text(render())
