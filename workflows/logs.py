"""What happened to a run, with the time, in log.txt beside its records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fnbandit.errors import Interrupted
from workflows.secrets import MaskingFormatter

NAME = "log.txt"
log = logging.getLogger("fnbandit")


@contextmanager
def logged(directory: Path) -> Iterator[None]:
    """Append what this thread logs meanwhile to a run's log.txt, and the whole of an error that ends it."""
    if (directory / NAME).is_symlink():
        (directory / NAME).unlink()  # it would lead out of the folder
    handler = logging.FileHandler(directory / NAME, encoding="utf-8")
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(message)s"))
    thread = threading.get_ident()
    handler.addFilter(lambda record: record.thread == thread)
    log.addHandler(handler)
    try:
        yield
    except Interrupted:
        raise
    except (Exception, SystemExit) as error:
        # To the file alone: who carries out the study says it in a line.
        text = f"{type(error).__name__}: {error}"
        whole = (type(error), error, error.__traceback__)
        handler.handle(log.makeRecord(log.name, logging.ERROR, __file__, 0, text, (), whole))
        raise
    finally:
        log.removeHandler(handler)
        handler.close()
