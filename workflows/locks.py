"""One process at a time writes to a folder.

The holder keeps FOLDER/fnbandit.lock open under a lock of the operating system, which ends with the process however it
ends, and writes its host and process id into it. Not every shared file system passes such locks on to other hosts:
there the file's time, which the holder renews, says whether it lives. A lock is stale, and taken over, if its holder
was on this host and its lock has ended, or was on another and has given no sign for STALE seconds.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "fnbandit.lock"
SIGN_EVERY, STALE = 15.0, 60.0
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder; a ValueError of one line where one does."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / NAME
    file = _taken(directory)
    stop = threading.Event()
    signs = threading.Thread(target=_signs, args=(file, stop), name="fnbandit-lock", daemon=True)
    try:
        os.truncate(file, 0)
        os.pwrite(file, json.dumps(_this_process()).encode(), 0)
        signs.start()
        yield
    finally:
        stop.set()
        if signs.is_alive():
            signs.join()
        if _holder(file) == _this_process():
            path.unlink(missing_ok=True)
        os.close(file)


def held(directory: Path) -> bool:
    """Whether a process writes to a folder now, as far as its lock's file says; nothing is locked for the question."""
    try:
        file = os.open(directory / NAME, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        holder = _holder(file)
        if holder and holder["host"] == socket.gethostname():
            return _runs(holder["pid"])
        return time.time() - os.fstat(file).st_mtime < STALE
    finally:
        os.close(file)


def _taken(directory: Path) -> int:
    """The lock's file, open and locked."""
    path = directory / NAME
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            known = True
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(_refusal(directory, _holder(file))) from None
            except OSError as error:
                if error.errno not in UNSUPPORTED:
                    raise
                known = False
            holder = _holder(file)
            if _alive(directory, file, holder, known):
                raise ValueError(_refusal(directory, holder))
            # Another process may have ended, and removed the file, between our opening and locking it.
            if path.exists() and os.path.samestat(os.fstat(file), os.stat(path)):
                return file
            os.close(file)
        except BaseException:
            os.close(file)
            raise


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid()}


def _holder(file: int) -> dict[str, Any]:
    """Who wrote the lock; nobody where it is new, or was cut off."""
    try:
        found = json.loads(os.pread(file, 4096, 0))
        return {"host": str(found["host"]), "pid": int(found["pid"])}
    except (ValueError, KeyError, TypeError):
        return {}


def _alive(directory: Path, file: int, holder: dict[str, Any], known: bool) -> bool:
    """Whether a holder whose lock the operating system does not know of is at work all the same."""
    if not holder:
        return False
    if holder["host"] == socket.gethostname():
        return not known and holder["pid"] != os.getpid() and _runs(holder["pid"])
    # The file system's own clock: hosts' clocks differ.
    probe = directory / f"{NAME}.{socket.gethostname()}.{os.getpid()}"
    probe.touch()
    now = probe.stat().st_mtime
    probe.unlink()
    return now - os.fstat(file).st_mtime < STALE


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def _refusal(directory: Path, holder: dict[str, Any]) -> str:
    who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    return f"out={str(directory)!r}: {who} is writing there; wait for it, or choose another directory"


def _signs(file: int, stop: threading.Event) -> None:
    """Renew the lock's time while it is held."""
    while not stop.wait(SIGN_EVERY):
        try:
            os.utime(file)
        except OSError:
            return
