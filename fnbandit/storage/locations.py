"""Locations of files: a directory, or a URI that pyarrow.fs opens (s3://, gs://, hdfs://, file://)."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def is_uri(place: str) -> bool:
    """Return True where a location is a URI, not a directory of this machine."""
    return "://" in place


def below(place: str, path: str) -> str:
    """Return the location of a path below another location; the options of a URI stay at its end."""
    start, mark, options = place.partition("?") if is_uri(place) else (place, "", "")
    start = start.rstrip("/") or "/"
    return f"{start}{mark}{options}" if path == "." else f"{start.rstrip('/')}/{path}{mark}{options}"


def sort_key(path: PurePath) -> list[list[tuple[float, str]]]:
    """Return the sort key of a path that orders numbers in its parts by size: agents=2 before agents=10."""
    return [
        [(float(word), "") if number else (float("inf"), word) for number, word in _words(part)] for part in path.parts
    ]


def _words(text: str) -> list[tuple[bool, str]]:
    """Split a text into words and numbers."""
    return [(place % 2 == 1, word) for place, word in enumerate(re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text))]


def open_location(place: str) -> tuple[FileSystem, str]:
    """Return the file system of a location and the path there; raise pyarrow's error where there is none."""
    from pyarrow import fs  # here, so that --help does not import it

    if not is_uri(place):
        return fs.LocalFileSystem(), place
    system, path = fs.FileSystem.from_uri(place)
    return system, path.rstrip("/")
