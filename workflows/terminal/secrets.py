"""Masks the secrets of URIs, which are neither printed nor stored: user-info, query values and fragments."""

from __future__ import annotations

import logging
import re
from urllib.parse import urlsplit

HIDDEN = "***"
HARMLESS = {
    "allow_bucket_creation", "allow_bucket_deletion", "anonymous", "cache", "charset", "connect_timeout", "driver",
    "endpoint_override", "mode", "region", "scheme", "searchFilter", "sslmode", "timeout", "viewStateShareKey",
    "workflowType",
}  # fmt: skip
"""Names of query values that are no secrets"""
_URI = re.compile(r"\w[\w+.-]*://[^\s'\"]+")
_HOST = re.compile(r"(?<![\w/@])[^\s'\"/@:=]+:(?!//)[^\s'\"@]+@(?=[\w.-]+:\d)")
"""User and password before HOST:PORT"""
_VALUE = re.compile(r"([?&;])([^=&;#]*)=([^&;#]*)")


def mask_secrets(text: str) -> str:
    """Replace whatever may be a secret in the URIs of a text by ***."""
    return _HOST.sub(f"{HIDDEN}@", _URI.sub(lambda found: _mask_uri(found[0]), text))


def _mask_uri(uri: str) -> str:
    """Return a URI without user-info, and without query values and fragments that are not known to be harmless."""
    scheme, _, rest = uri.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user, at, place = rest.rpartition("@")
    # A password may contain a slash: with a colon before it, everything before the last @ may be one.
    if at and ("@" in authority or ":" in user):
        rest = f"{HIDDEN}@{place}"
    rest, mark, fragment = rest.partition("#")
    if mark and not fragment.startswith("/"):  # a page's own path, as MLflow's
        fragment = HIDDEN if fragment else ""
    masked = f"{scheme}://{_mask_values(rest)}{mark}{_mask_values(fragment)}"
    try:
        urlsplit(masked)
    except ValueError:
        return f"{scheme}://{HIDDEN}"
    return masked


def _mask_values(text: str) -> str:
    return _VALUE.sub(lambda m: m[0] if m[2] in HARMLESS or not m[3] else f"{m[1]}{m[2]}={HIDDEN}", text)


def check_uri(name: str, value: str | None) -> None:
    """Raise ValueError, without the value, where a place cannot be parsed: it would be printed and stored in parts."""
    if value is None or ("://" not in value and "@" not in value):
        return
    if re.search(r"\s", value) or (name == "address" and "@" in value):
        expected = "HOST:PORT" if name == "address" else "a URI in which special characters are written as %20"
        raise ValueError(f"{name}: cannot be read, and may contain a password (not shown); expected {expected}")


class MaskingFormatter(logging.Formatter):
    """Formats log records without passwords."""

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))
