"""Contexts of the arms of a table's row: how an arm enters the context. Without torch, for policies in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def code_disjoint(rows: np.ndarray, arms: np.ndarray) -> np.ndarray:
    """Return contexts with x in block k of K and zeros elsewhere: x [.., d] and e_k [.., K] -> [.., K d]."""
    blocks = np.where(arms[..., :, None] > 0, rows[..., None, :], 0.0)
    return blocks.reshape(*blocks.shape[:-2], -1)


def code_one_hot(rows: np.ndarray, arms: np.ndarray) -> np.ndarray:
    """Return contexts [x, e_k]: x [.., d] and e_k [.., K] -> [.., d + K]."""
    shape = np.broadcast_shapes(rows.shape[:-1], arms.shape[:-1])
    parts = [np.broadcast_to(values, (*shape, values.shape[-1])) for values in (rows, arms)]
    return np.concatenate(parts, axis=-1)


CODINGS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "disjoint": code_disjoint,
    "one-hot": code_one_hot,
}
"""By the names that `Config.coding` accepts"""


def code_arms(coding: str, rows: np.ndarray, arms: int) -> np.ndarray:
    """Return one context per arm of every row, [rows, d] -> [rows, arms, dim]."""
    return CODINGS[coding](rows[:, None], np.eye(arms)[None])


@dataclass(frozen=True)
class RowCoding:
    """How a row of raw features becomes contexts: scaled as the table it was learned from, then coded for each arm."""

    coding: str
    arms: int
    is_unit: bool
    """True where rows are scaled to unit length first"""
    shift: np.ndarray
    """[d]"""
    scale: np.ndarray
    """[d]"""

    def contexts(self, rows: np.ndarray) -> np.ndarray:
        """Return the contexts of raw rows, [count, d] -> [count, arms, dim]."""
        if self.is_unit:
            rows = unit_rows(rows)
        return code_arms(self.coding, (rows - self.shift) / self.scale, self.arms)


def unit_rows(features: np.ndarray) -> np.ndarray:
    """Return rows scaled to unit length (rows of zeros unchanged)."""
    length = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(length == 0, 1, length)
