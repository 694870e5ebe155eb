"""Notes of a release are its section of CHANGELOG.md; links of the README work where the repository has an address."""

from setup import readme
from wheels.notes import of_version

CHANGELOG = "# Changelog\n\n<!-- start -->\n\n## 0.2.0 (day)\n\n### Fixed\n\nB\n\n## 0.1.0 (day)\n\nA\n"


def test_a_version_has_its_own_section() -> None:
    assert of_version(CHANGELOG, "0.2.0") == "### Fixed\n\nB"
    assert of_version(CHANGELOG, "0.1.0") == "A"


def test_a_version_that_is_not_there_has_none() -> None:
    assert of_version(CHANGELOG, "0.2") is None
    assert of_version(CHANGELOG, "0.3.0") is None


def test_links_of_the_readme_are_relative_until_there_is_a_repository() -> None:
    assert "](ARCHITECTURE.md)" in readme(None)
    absolute = readme("https://example.org/maxq/")
    assert "](https://example.org/maxq/blob/main/ARCHITECTURE.md)" in absolute
    assert 'src="https://example.org/maxq/raw/main/' in absolute
    assert not [relative for relative in ("](docs/", 'src="docs', 'srcset="docs') if relative in absolute]
