"""Passwords in URIs: used, and neither printed nor kept."""

from __future__ import annotations

import logging
import re

HIDDEN = "***"
_PASSWORD = re.compile(r"(\w+://[^\s/:@]*):[^\s/]*@")
_PARAMETER = re.compile(
    r"(?i)([?&;][\w.-]*(?:password|passwd|pwd|token|secret|key|signature|sig|credential)[\w.-]*=)[^\s&;]+"
)


def masked(text: str) -> str:
    """A text without the passwords, tokens and keys of the URIs in it."""
    return _PARAMETER.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}@", text))


class MaskingFormatter(logging.Formatter):
    """Log lines without passwords, wherever their text comes from."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))
