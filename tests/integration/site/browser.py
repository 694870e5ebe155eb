"""The manual's site in a real browser: Chromium without a window.

    python -m tests.integration.site.browser                       # what looks wrong on any page, at every width
    python -m tests.integration.site.browser --pictures DIR [PAGE …]   # pictures of pages: wide, narrow and dark

Needs the site that `make docs` builds, and Chromium or Chrome on PATH. `make docs-look` runs it as a test.
"""

import argparse
import contextlib
import functools
import http.server
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
SITE: Final = ROOT / "site"
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip
#: What a page is looked at with: name → width of the window in pixels, and whether the system prefers dark pages.
LOOKS: Final = {"wide": (1440, False), "narrow": (390, False), "dark": (1440, True)}
SECONDS: Final = 240.0  # for all pages at one look
_LOOK: Final = "/look.html"
_FOUND: Final = "/found"
_SCRIPT: Final = (Path(__file__).parent / "look.js").read_text


def program() -> str | None:
    """The browser of this machine."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def pages() -> list[str]:
    """The addresses of the site's pages."""
    found = (page.relative_to(SITE).as_posix() for page in SITE.rglob("index.html"))
    return sorted("/" + page.removesuffix("index.html") for page in found)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and the page that looks at all others in frames; takes what that page has found."""

    def __init__(self, found: "queue.Queue[Any]", looked_at: list[str], *arguments: Any) -> None:
        self._found = found
        self._looked_at = looked_at
        super().__init__(*arguments, directory=str(SITE))

    def do_GET(self) -> None:
        if self.path != _LOOK:
            super().do_GET()
            return
        text = f"<!doctype html><body style='margin:0'><script>const pages = {json.dumps(self._looked_at)};"
        body = f"{text}\n{_SCRIPT()}</script></body>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self._found.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(looked_at: list[str]) -> Iterator[tuple[str, "queue.Queue[Any]"]]:
    """The site on a free port: its address, and what the looking page finds."""
    found: queue.Queue[Any] = queue.Queue()
    handler = functools.partial(_Handler, found, looked_at)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", found
        server.shutdown()


def _command(look: str, profile: str, *flags: str) -> list[str]:
    browser = program()
    assert browser is not None
    width, dark = LOOKS[look]
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    return [browser, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},1000", scheme, *flags]


def faults(look: str) -> list[str]:
    """What is wrong on any page at one look: what is wider than the window and cannot be scrolled, and pictures that do
    not load."""
    with served(pages()) as (address, found), tempfile.TemporaryDirectory() as profile:
        command = _command(look, profile, "--remote-debugging-port=0", address + _LOOK)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                looked_at: dict[str, list[str]] = found.get(timeout=SECONDS)
            finally:
                browser.kill()
    assert list(looked_at) == pages()
    return [f"{look}: {page}: {fault}" for page, several in looked_at.items() for fault in several]


def picture(page: str, look: str, file: Path, height: int = 1400) -> None:
    """Write a PNG of a page's beginning."""
    with served([]) as (address, _), tempfile.TemporaryDirectory() as profile:
        width, _ = LOOKS[look]
        command = _command(look, profile, f"--screenshot={file}", "--virtual-time-budget=5000")
        subprocess.run([*command, f"--window-size={width},{height}", address + page], check=True, capture_output=True)


def main() -> int:
    """Look, or take pictures."""
    parser = argparse.ArgumentParser(prog="tests.integration.site.browser", description="The site in a browser.")
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    parser.add_argument("pages", nargs="*", default=["/"])
    given = parser.parse_args()
    if program() is None or not SITE.is_dir():
        parser.error("make docs first, and install chromium")
    if given.pictures:
        given.pictures.mkdir(parents=True, exist_ok=True)
        for page in given.pages:
            for look in LOOKS:
                picture(page, look, given.pictures / f"{page.strip('/').replace('/', '-') or 'home'}-{look}.png")
        return 0
    found = [fault for look in LOOKS for fault in faults(look)]
    print(*found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
