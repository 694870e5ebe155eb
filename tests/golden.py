"""Stores and recorded frames that Java brokers wrote: `tests/data/golden`, whose README.md says how."""

import json
import shutil
from pathlib import Path
from typing import Final

GOLDEN: Final = Path(__file__).parent / "data" / "golden"
STORES: Final = GOLDEN / "stores"
WIRE: Final = GOLDEN / "wire"


def restore(name: str, folder: Path) -> Path:
    """Make a working copy of a golden store in `folder`, whatever was there before, and return `folder`.

    Of large files only those 4 KiB chunks are kept that are not zero (`sparse.json`); the copy has whole, sparse files.
    """
    source = STORES / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)
    sparse = folder / "sparse.json"
    if sparse.exists():
        for file, content in json.loads(sparse.read_text()).items():
            chunks = folder / f"{file}.chunks"
            with open(chunks, "rb") as given, open(folder / file, "wb") as made:
                for offset, size in content["chunks"]:
                    made.seek(offset)
                    made.write(given.read(size))
                made.truncate(content["size"])
            chunks.unlink()
        sparse.unlink()
    return folder
