"""Locks folders: one process at a time writes to a folder.

The holder keeps FOLDER/fnbandit.lock open under a lock of the operating system, which ends with the process however it
ends, and writes its host and process id into it. Not every shared file system passes such locks on to other hosts:
there the file's time, which the holder renews, shows whether the holder is alive. A lock is stale, and taken over, if
its holder was on this host and its lock has ended, or was on another and has not renewed the time for STALE seconds.
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

from fnbandit.storage.files import LOCK_FILE, check_inside

SIGN_EVERY, STALE = 15.0, 60.0
UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Keep other processes from writing to a folder; a one-line ValueError if one does."""
    path = directory / LOCK_FILE
    check_inside(path)
    directory.mkdir(parents=True, exist_ok=True)
    file = _acquire(directory)
    stop = threading.Event()
    renewal = threading.Thread(target=_renew, args=(file, stop), name="fnbandit-lock", daemon=True)
    try:
        os.truncate(file, 0)
        os.pwrite(file, json.dumps(_this_process()).encode(), 0)
        renewal.start()
        yield
    finally:
        stop.set()
        if renewal.is_alive():
            renewal.join()
        if _holder(file) == _this_process():
            path.unlink(missing_ok=True)
        os.close(file)


def is_locked(directory: Path) -> bool:
    """Return True if a process writes to a folder now, by its lock file; does not take the lock."""
    try:
        file = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        holder = _holder(file)
        if holder and holder["host"] == socket.gethostname():
            return _is_running(holder["pid"])
        return time.time() - os.fstat(file).st_mtime < STALE
    finally:
        os.close(file)


def _acquire(directory: Path) -> int:
    """Open and lock the lock file."""
    path = directory / LOCK_FILE
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
            if _is_alive(directory, file, holder, known):
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
    """Read the host and process that wrote the lock; empty if it is new or cut off."""
    try:
        found = json.loads(os.pread(file, 4096, 0))
        return {"host": str(found["host"]), "pid": int(found["pid"])}
    except (ValueError, KeyError, TypeError):
        return {}


def _is_alive(directory: Path, file: int, holder: dict[str, Any], known: bool) -> bool:
    """Return True if a holder without a lock of the operating system is alive."""
    if not holder:
        return False
    if holder["host"] == socket.gethostname():
        return not known and holder["pid"] != os.getpid() and _is_running(holder["pid"])
    # The file system's own clock: hosts' clocks differ.
    probe = directory / f"{LOCK_FILE}.{socket.gethostname()}.{os.getpid()}"
    probe.touch()
    now = probe.stat().st_mtime
    probe.unlink()
    return now - os.fstat(file).st_mtime < STALE


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def _refusal(directory: Path, holder: dict[str, Any]) -> str:
    who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
    return f"out={str(directory)!r}: {who} is writing there; wait for it, or choose another directory"


def _renew(file: int, stop: threading.Event) -> None:
    """Renew the time of the lock file while it is held."""
    while not stop.wait(SIGN_EVERY):
        try:
            os.utime(file)
        except OSError:
            return
