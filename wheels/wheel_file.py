"""Wheels with compiled modules, made of the pure one: its files, the modules, and what the archive says of itself."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

_WHEN = (1980, 1, 1, 0, 0, 0)  # of each file, so that one source gives one archive


def compiled_wheel(pure: Path, modules: Mapping[str, bytes], tags: list[str], folder: Path) -> Path:
    """Write a wheel that has the files of `pure` and compiled modules.

    Args:
        pure: a wheel with the tag py3-none-any.
        modules: path in the wheel → bytes.
        tags: what it is for, such as `cp312-cp312-manylinux_2_17_x86_64`; they differ in the platform alone.
        folder: where to.
    """
    distribution, release = pure.name.split("-")[:2]
    interpreter, abi, _ = tags[0].split("-")
    platforms = ".".join(tag.split("-")[2] for tag in tags)
    info = f"{distribution}-{release}.dist-info"
    with zipfile.ZipFile(pure) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    del files[f"{info}/RECORD"]
    files[f"{info}/WHEEL"] = _described(files[f"{info}/WHEEL"].decode(), tags).encode()
    files |= modules
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in sorted(files.items())]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    made = folder / f"{distribution}-{release}-{interpreter}-{abi}-{platforms}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items(), key=lambda item: (item[0].startswith(info), item[0])):
            entry = zipfile.ZipInfo(name, _WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, data)
    return made


def _described(text: str, tags: list[str]) -> str:
    """The file WHEEL for these tags."""
    kept = [line for line in text.splitlines() if line and not line.startswith(("Tag:", "Root-Is-Purelib:"))]
    return "\n".join([*kept, "Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags), ""])


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
