"""Quantities that agents report with their uploads, for the record of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fnbandit.core import Download, Upload
from fnbandit.numerics.device import read_scalars


@dataclass(frozen=True)
class Quantity:
    """A quantity that agents report; a round records its mean over the participants."""

    name: str
    """Its key in `Upload.report`, and its column in rounds.parquet"""
    metric: str | None = None
    """Its name in MLflow; None where only the records have it"""


QUANTITIES = (
    Quantity("loss", "loss"),
    Quantity("steps", "steps"),
    Quantity("diverged"),
    Quantity("alpha"),
    Quantity("broadcast_alpha"),
    Quantity("dropped_share", "dropped_share"),
)
"""loss: mean squared error of the training; steps: its steps; diverged: share of agents whose training diverged, which
return to their start; alpha: alpha_i, where agents compute it (Alg. 1, line 15); broadcast_alpha: the server's alpha
(Alg. 2, line 4); dropped_share: share of agents whose uploads failed a check of the server
"""


def average_quantities(
    uploads: Sequence[Upload], download: Download, select: Callable[[Tensor], Tensor] = lambda values: values
) -> dict[str, float]:
    """Return the means over selected agents of the quantities of one exchange; NaN where no agent reports one."""
    reported = {one.name: [upload.report[one.name] for upload in uploads if one.name in upload.report]
                for one in QUANTITIES}  # fmt: skip
    means = {name: select(torch.cat(parts)).mean() for name, parts in reported.items() if parts}
    if isinstance(download.alpha, Tensor):
        means["broadcast_alpha"] = download.alpha
    found = dict.fromkeys(reported, math.nan)
    if means:
        found |= dict(zip(means, read_scalars(*means.values()), strict=True))
    return found
