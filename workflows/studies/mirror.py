"""Copies the records of a study to a URI: every run is written to a local folder and copied when it ends.

Files that cannot be copied stay in the folder until the next command for the study. The summary of a run goes last:
it marks a complete copy. Rows of a run that has not ended are in its checkpoints, which go to the
URI themselves. Only MIRRORED_FILES and figures are read, written or deleted there.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs

from fnbandit.storage.files import FIGURES_FOLDER, MIRRORED_FILES, STUDY_FILE, SUMMARY_FILE
from fnbandit.storage.locations import is_uri, open_location
from fnbandit.storage.records import atomic_write
from workflows.studies.study import StudyPlan, load_study
from workflows.terminal.secrets import mask_secrets

COPY_BYTES = 1 << 22
NOT_YET = "it was not copied before"

log = logging.getLogger("fnbandit")


def check_place(directory: Path, out: str) -> None:
    """Raise if the study in a folder keeps its records elsewhere than in `out`."""
    if (directory / STUDY_FILE).exists():
        there = load_study(directory).settings.out
        if there != out and (is_uri(out) or (there is not None and is_uri(there))):
            kept = f"at {there}" if there is not None and is_uri(there) else "there alone"
            raise ValueError(
                f"out={out!r}: {directory} is for a study whose records are {kept}; "
                "choose another last word, or move that folder away"
            )


class Mirror:
    """The copy of one study at a URI."""

    def __init__(self, uri: str, directory: Path) -> None:
        self.uri, self._directory = uri, directory
        self._pending: dict[Path, str] = {}
        """Folders without a complete copy, with the reason"""
        self._sent: dict[Path, tuple[int, int]] = {}
        """Copied files, with their time and size then"""
        self._lock, self._begun, self._made = threading.Lock(), False, set[str]()
        try:
            self._fs, self._root = open_location(uri)
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None

    def fetch(self) -> None:
        """Download missing files; folders that the URI lacks become pending."""
        check_place(self._directory, self.uri)
        try:
            there = self._list_remote()
            for folder, names in there.items():
                # Every command for the study begins by copying study.json: the copy is the latest.
                wanted = MIRRORED_FILES if self._has_more(folder, names) else (STUDY_FILE,)
                for name in (name for name in wanted if name in names):
                    self._fetch(folder / name)
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None
        for path in self._directory.rglob(SUMMARY_FILE):
            if path.name not in there.get(path.parent.relative_to(self._directory), ()):
                self._set(path.parent, NOT_YET)

    def begin(self) -> None:
        """Copy study.json, so that the study can be resumed from the URI; a ValueError if that fails."""
        try:
            self._send(self._directory / STUDY_FILE)
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None
        self._begun = True
        for folder in list(self._pending):
            self.send(folder)

    def send(self, folder: Path) -> None:
        """Copy a folder's own files and its figures; a failure is a warning, and `finish` tries again."""
        names = [*sorted(folder.glob(f"{FIGURES_FOLDER}/*.*")), *(folder / name for name in MIRRORED_FILES)]
        try:
            for path in names:
                if path.is_file():
                    self._send(path)
            self._set(folder, None)
        except (pa.ArrowException, OSError) as error:
            if self._set(folder, _reason(error)) == 1:
                log.warning(
                    "fnbandit: %s: %s cannot be copied there (%s)", mask_secrets(self.uri), folder, _reason(error)
                )

    def finish(self) -> str | None:
        """Copy the study's own files, and those that are pending or have changed; return a message if any are left.

        mlflow.json may be written after the end of its run.
        """
        if not self._begun:
            return None
        seen = {path.parent for path in self._sent if path.parent.name != FIGURES_FOLDER}
        for folder in [*sorted(seen | self._pending.keys()), self._directory]:
            self.send(folder)
        if not self._pending:
            return None
        folders, reasons = map(str, self._pending), dict.fromkeys(self._pending.values())
        return f"{mask_secrets(self.uri)}: has no copy of {', '.join(folders)} ({'; '.join(reasons)})"

    def clear(self, study: StudyPlan) -> None:
        """Remove the files of a study from the URI."""
        try:
            there = self._list_remote()
            for folder in {Path("."), *(Path(point.path) for point in study.points)} & there.keys():
                for name in there[folder]:
                    self._fs.delete_file(self._path(folder / name))
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None

    def _list_remote(self) -> dict[Path, set[str]]:
        """List the folders at the URI, with those of their files that have our names."""
        found: dict[Path, set[str]] = {}
        selector = pyarrow.fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        for info in self._fs.get_file_info(selector):
            path = PurePosixPath(info.path.removeprefix(self._root).lstrip("/"))
            # Others may write there: a download must stay in the study's folder.
            if info.is_file and path.name in MIRRORED_FILES and ".." not in path.parts:
                found.setdefault(Path(path.parent), set()).add(path.name)
        return found

    def _has_more(self, folder: Path, names: set[str]) -> bool:
        """Return True if a folder at the URI has more than ours."""
        mark = SUMMARY_FILE if SUMMARY_FILE in names else STUDY_FILE
        here = self._directory / folder / mark
        if not here.exists():
            return mark in names
        if mark == STUDY_FILE:
            return False
        theirs, ours = self._read(folder / mark), here.read_bytes()
        if theirs == ours:
            return False
        if _is_finished(theirs) and not _is_finished(ours):
            return True
        self._set(self._directory / folder, NOT_YET)
        return False

    def _set(self, folder: Path, reason: str | None) -> int:
        """Mark a folder as pending, or not with None; return the number of pending folders."""
        with self._lock:
            self._pending.pop(folder, None)
            if reason is not None:
                self._pending[folder] = reason
            return len(self._pending)

    def _send(self, path: Path) -> None:
        state = path.stat()
        if self._sent.get(path) == (state.st_mtime_ns, state.st_size):
            return
        target = self._path(path.relative_to(self._directory))
        if (parent := target.rpartition("/")[0]) not in self._made:
            self._fs.create_dir(parent, recursive=True)
            self._made.add(parent)
        with path.open("rb") as source, self._fs.open_output_stream(target) as stream:
            while block := source.read(COPY_BYTES):
                stream.write(block)
        self._sent[path] = (state.st_mtime_ns, state.st_size)

    def _fetch(self, path: Path) -> None:
        here = self._directory / path
        here.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(here) as part:
            part.write_bytes(self._read(path))

    def _read(self, path: Path) -> bytes:
        with self._fs.open_input_stream(self._path(path)) as stream:
            return stream.read()

    def _path(self, path: Path) -> str:
        return f"{self._root}/{path.as_posix()}"

    def _refusal(self, error: Exception) -> ValueError:
        return ValueError(f"out={mask_secrets(self.uri)!r}: cannot be used ({_reason(error)})")


def _is_finished(summary: bytes) -> bool:
    try:
        return json.loads(summary)["status"] == "finished"
    except (ValueError, KeyError, TypeError):
        return False


def _reason(error: Exception) -> str:
    return mask_secrets((str(error).splitlines() or [type(error).__name__])[0])
