"""Places for files: a directory, or a URI that pyarrow.fs opens (s3://, gs://, hdfs://, file://)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def is_uri(place: str) -> bool:
    """Whether a place is a URI and no directory of this machine."""
    return "://" in place


def below(place: str, path: str) -> str:
    """The place of a path below another; a URI's options stay at its end."""
    start, mark, options = place.partition("?") if is_uri(place) else (place, "", "")
    start = start.rstrip("/") or "/"
    return f"{start}{mark}{options}" if path == "." else f"{start.rstrip('/')}/{path}{mark}{options}"


def opened(place: str) -> tuple[FileSystem, str]:
    """The file system that a place is in, and its path there; pyarrow's errors where there is none."""
    from pyarrow import fs  # here, because help should not wait for it

    if not is_uri(place):
        return fs.LocalFileSystem(), place
    system, path = fs.FileSystem.from_uri(place)
    return system, path.rstrip("/")
