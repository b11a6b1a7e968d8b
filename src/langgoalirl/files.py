"""Reading other people's files with care, and writing ours so that none is ever half there."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from langgoalirl.errors import UserError


def read_text(path: Path) -> str:
    """A UTF-8 text file, or one sentence about why not."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file.") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder, a file is expected.") from None
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: not UTF-8 text (byte {error.start}); convert it or fetch it again."
        ) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}).") from None


def read_json(path: Path) -> Any:
    """A JSON file, or one sentence with the line at which it breaks."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}: not valid JSON at line {error.lineno}, column {error.colno} ({error.msg}); "
            "the file may be cut short: fetch it again."
        ) from None
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        raise UserError(f"{path}: JSON that is no data of ours; fetch the file again.") from None


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def atomic_write(path: Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Write beside `path` and rename at the end: readers see the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    encoding = None if "b" in mode else "utf-8"
    try:
        with os.fdopen(descriptor, mode, encoding=encoding) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, *, indent: int | None = 2) -> None:
    """JSON with a final newline, written atomically."""
    with atomic_write(path, "w") as file:
        json.dump(value, file, indent=indent, ensure_ascii=False)
        file.write("\n")
