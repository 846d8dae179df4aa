"""Writes the log of a run, with times, to log.txt beside its records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fnbandit.errors import Interrupted
from fnbandit.storage.files import LOG_FILE, check_inside
from workflows.terminal.secrets import MaskingFormatter

log = logging.getLogger("fnbandit")


@contextmanager
def logged(directory: Path) -> Iterator[None]:
    """Append the log records of this thread to a run's log.txt, with the traceback of an error that ends it."""
    check_inside(directory / LOG_FILE)
    if (directory / LOG_FILE).is_symlink():
        (directory / LOG_FILE).unlink()  # it would lead out of the folder
    handler = logging.FileHandler(directory / LOG_FILE, encoding="utf-8")
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(message)s"))
    thread = threading.get_ident()
    handler.addFilter(lambda record: record.thread == thread)
    log.addHandler(handler)
    try:
        yield
    except Interrupted:
        raise
    except (Exception, SystemExit) as error:
        # To the file alone: the runner prints one line.
        text = f"{type(error).__name__}: {error}"
        whole = (type(error), error, error.__traceback__)
        handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, text, (), whole))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()
