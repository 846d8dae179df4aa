"""Masks passwords in URIs, which are neither printed nor stored."""

from __future__ import annotations

import logging
import re

HIDDEN = "***"
_PASSWORD = re.compile(r"(\w+://[^\s/:@]*):[^\s/]*@")
_PARAMETER = re.compile(
    r"(?i)([?&;][\w.-]*(?:password|passwd|pwd|token|secret|key|signature|sig|credential)[\w.-]*=)[^\s&;]+"
)


def mask_secrets(text: str) -> str:
    """Replace the passwords, tokens and keys of URIs in a text by ***."""
    return _PARAMETER.sub(rf"\1{HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}@", text))


class MaskingFormatter(logging.Formatter):
    """Formats log records without passwords."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))
