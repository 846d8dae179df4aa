"""Standard output and standard error: a terminal, a pipe or a file."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from workflows.terminal.secrets import mask_secrets

if TYPE_CHECKING:
    from rich.console import Console

ASCII_WORDS = str.maketrans(
    {"±": "+/-", "×": "x", "…": "...", "–": "-", "ν": "nu", "λ": "lambda", "α": "alpha", "ε": "epsilon"}
)
"""For terminals that know no other letters than ASCII's"""


class Output:
    """A stream that outlives its reader: later text is dropped, and `error` has the reason.

    A run goes on when `| head -1` has read enough or the disk behind `> log.txt` is full: its records matter more.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # None: the parent process has closed it. A file that is opened later must not take its number.
        stream = stream or open(os.devnull, "w")  # noqa: SIM115
        self._stream = stream
        self.error: OSError | None = None
        try:
            "±".encode(stream.encoding or "ascii")
            self._plain = False
        except (UnicodeEncodeError, LookupError):
            self._plain = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if self._plain:
            # As wide as it was, for tables.
            text = text.replace(" ± ", "+/-").translate(ASCII_WORDS).encode("ascii", "replace").decode()
        if self.error is None:
            try:
                self._stream.write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def flush(self) -> None:
        if self.error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.error = error
        # What is left in the buffer would be tried again, and complained about, when Python ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


class Messages(logging.Handler):
    """Write log records as lines to the current standard error, which a live display may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        print(mask_secrets(self.format(record)), file=sys.stderr)


MESSAGE_HANDLER = Messages()
"""The handler of the command line; `main` and --verbose set its level"""


# rich is imported where it is used: `fnbandit --help` does not wait for it.


def console(quiet: bool = False) -> Console:
    """Return where results go, wide enough for tables where there is no terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 120
    # Paths, labels and titles are no markup, whatever is in them.
    return Console(width=width, highlight=False, markup=False, emoji=False, quiet=quiet)


def errors() -> Console:
    """Return where errors go, a line each."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def command_name() -> str:
    """Return the word to type for `fnbandit` here: a fresh checkout's environment may not be on the path."""
    if shutil.which("fnbandit"):
        return "fnbandit"
    return os.path.relpath(Path(sys.executable).with_name("fnbandit"))
