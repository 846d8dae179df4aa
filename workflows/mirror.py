"""Records at a URI: a study is written to a folder of this machine, and every run is copied when it ends.

What cannot be copied stays in the folder, and goes with the next command for the study. The summary of a run goes
last: a run whose summary is there is there. Rows of a run that has not ended are in its checkpoints, which go to the
URI themselves. Only files of the names below are read, written or deleted there.
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs

from fnbandit.places import is_uri, opened
from fnbandit.records import aside
from workflows.secrets import masked
from workflows.study import Study, load_study

NAMES = (
    "study.json", "config.toml", "log.txt", "mlflow.json", "report.html", "table.csv", "trace.parquet",
    "rounds.parquet", "summary.json",
)  # fmt: skip
"""What is copied of a study's or a run's folder, in this order; its figures come before"""
BLOCK = 1 << 22
NOT_YET = "it was not copied before"

log = logging.getLogger("fnbandit")


def check_place(directory: Path, out: str) -> None:
    """Raise where the study in a folder has its records elsewhere than `out`."""
    if (directory / "study.json").exists():
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
        """Folders that are not copied yet, with the reason"""
        self._sent: dict[Path, tuple[int, int]] = {}
        """The files that have been copied, with their time and size then"""
        self._lock, self._begun, self._made = threading.Lock(), False, set[str]()
        try:
            self._fs, self._root = opened(uri)
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None

    def fetch(self) -> None:
        """Bring what is there and not here; what is here and not there is pending."""
        check_place(self._directory, self.uri)
        try:
            there = self._listed()
            for folder, names in there.items():
                # Every command for the study begins by copying study.json: what is there is the latest.
                wanted = NAMES if self._wanted(folder, names) else ("study.json",)
                for name in (name for name in wanted if name in names):
                    self._fetch(folder / name)
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None
        for path in self._directory.rglob("summary.json"):
            if path.name not in there.get(path.parent.relative_to(self._directory), ()):
                self._set(path.parent, NOT_YET)

    def begin(self) -> None:
        """Copy study.json, so that the study can be resumed from there; a ValueError where that cannot be written."""
        try:
            self._send(self._directory / "study.json")
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None
        self._begun = True
        for folder in list(self._pending):
            self.send(folder)

    def send(self, folder: Path) -> None:
        """Copy a folder's own files and its figures; where that fails, say so, and try again at the end."""
        names = [*sorted(folder.glob("figures/*.*")), *(folder / name for name in NAMES)]
        try:
            for path in names:
                if path.is_file():
                    self._send(path)
            self._set(folder, None)
        except (pa.ArrowException, OSError) as error:
            if self._set(folder, _reason(error)) == 1:
                log.warning("fnbandit: %s: %s cannot be copied there (%s)", masked(self.uri), folder, _reason(error))

    def finish(self) -> str | None:
        """Copy the study's own files, and what is pending or has changed; if something stays behind, what to say of it.

        MLflow may be late in telling which run of its own is a run's window.
        """
        if not self._begun:
            return None
        seen = {path.parent for path in self._sent if path.parent.name != "figures"}
        for folder in [*sorted(seen | self._pending.keys()), self._directory]:
            self.send(folder)
        if not self._pending:
            return None
        folders, reasons = map(str, self._pending), dict.fromkeys(self._pending.values())
        return f"{masked(self.uri)}: has no copy of {', '.join(folders)} ({'; '.join(reasons)})"

    def clear(self, study: Study) -> None:
        """Remove what a study has left there."""
        try:
            there = self._listed()
            for folder in {Path("."), *(Path(point.path) for point in study.points)} & there.keys():
                for name in there[folder]:
                    self._fs.delete_file(self._path(folder / name))
        except (pa.ArrowException, OSError) as error:
            raise self._refusal(error) from None

    def _listed(self) -> dict[Path, set[str]]:
        """The folders there, with those of their files that have our names."""
        found: dict[Path, set[str]] = {}
        selector = pyarrow.fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        for info in self._fs.get_file_info(selector):
            path = PurePosixPath(info.path.removeprefix(self._root).lstrip("/"))
            # Whoever wrote there: what is fetched stays in the study's folder.
            if info.is_file and path.name in NAMES and ".." not in path.parts:
                found.setdefault(Path(path.parent), set()).add(path.name)
        return found

    def _wanted(self, folder: Path, names: set[str]) -> bool:
        """Whether a folder there has more than ours."""
        mark = "summary.json" if "summary.json" in names else "study.json"
        here = self._directory / folder / mark
        if not here.exists():
            return mark in names
        if mark == "study.json":
            return False
        theirs, ours = self._read(folder / mark), here.read_bytes()
        if theirs == ours:
            return False
        if _finished(theirs) and not _finished(ours):
            return True
        self._set(self._directory / folder, NOT_YET)
        return False

    def _set(self, folder: Path, reason: str | None) -> int:
        """Note whether a folder is pending; how many are."""
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
            while block := source.read(BLOCK):
                stream.write(block)
        self._sent[path] = (state.st_mtime_ns, state.st_size)

    def _fetch(self, path: Path) -> None:
        here = self._directory / path
        here.parent.mkdir(parents=True, exist_ok=True)
        with aside(here) as part:
            part.write_bytes(self._read(path))

    def _read(self, path: Path) -> bytes:
        with self._fs.open_input_stream(self._path(path)) as stream:
            return stream.read()

    def _path(self, path: Path) -> str:
        return f"{self._root}/{path.as_posix()}"

    def _refusal(self, error: Exception) -> ValueError:
        return ValueError(f"out={masked(self.uri)!r}: cannot be used ({_reason(error)})")


def _finished(summary: bytes) -> bool:
    try:
        return json.loads(summary)["status"] == "finished"
    except (ValueError, KeyError, TypeError):
        return False


def _reason(error: Exception) -> str:
    return masked((str(error).splitlines() or [type(error).__name__])[0])
