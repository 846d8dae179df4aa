"""Links at the head of the chain of channels that clip what agents send, and add noise to it.

A message leaves with listed fields only, so that a new field of `Upload` does not leave unnoticed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.core import Triangle, Upload
from fnbandit.covariance import Account, Estimate, Lift
from fnbandit.covariance.gram import triangle
from fnbandit.federation.channels import Channel, Sizes
from fnbandit.federation.messages import Contents
from fnbandit.federation.network_training import NetworkTraining
from fnbandit.federation.sampling import Sample, sample_limit
from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import multiply
from fnbandit.numerics.randomness import Purpose, normals
from fnbandit.privacy.account import NoisyAccount
from fnbandit.privacy.releases import REPLACED, REPLACED_SQUARE, plan_releases

PUBLIC_REPORTS = ("steps",)
"""Reported quantities that do not depend on data"""
CORRELATED = 2**48
"""Added to the keys of draws that several steps share; other keys are smaller"""
MOST_DRAWS = 2**24
"""More draws than a sequence of statistics has"""


class NoPrivacy(Channel):
    """Sends everything as it is."""

    is_private = False
    sends_triangles = False
    """True where W_new travels as the triangle of a symmetric matrix"""

    @classmethod
    def count_draws(cls, config: Config, parameters: int) -> int:
        """Return the numbers of noise that an agent keeps for a sequence of W and B, for `parameters` features."""
        return 0

    def check_rule(self, rule: NetworkTraining | None, is_partial: bool) -> None:
        """Raise a one-line ValueError on a rule or a participation that the accounting does not cover."""

    def account(self, estimate: Estimate, like: Tensor) -> Account:
        """Return the server's account of V_last."""
        return estimate.account(self._config.agents)


class Privacy(NoPrivacy):
    """Clips what an agent sends; subclasses add noise, in the agent or to the sum."""

    is_private = True

    def __init__(self, config: Config, parameters: int, lift: Lift) -> None:
        super().__init__(config, parameters, lift)
        self.releases = plan_releases(config)
        self.sends_triangles = bool(self.releases.sequences)
        self._draws: dict[tuple[int, int], np.ndarray] = {}
        """Draws of the present sequence of statistics, by (sequence, number); made again after a restart"""
        self._scales = self._statistics_scales(parameters) if self.sends_triangles else np.zeros(0)

    def check_rule(self, rule: NetworkTraining | None, is_partial: bool) -> None:
        if is_partial:
            raise ValueError(
                f"participation={self._config.participation!r}: privacy={self._config.privacy} accepts all"
            )
        if rule is not None and rule.gradient_rule is not None and not rule.gradient_rule.linear:
            raise ValueError(
                f"aggregation={self._config.aggregation!r}: privacy={self._config.privacy} accepts mean with gradients"
            )

    def clip_rows(self, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        if not self.sends_triangles:
            return rows, targets
        config = self._config
        rows, targets = torch.nan_to_num(rows), torch.nan_to_num(targets)
        limit = config.privacy_reward_clip
        return _shorten(rows, config.privacy_feature_clip), targets.clamp(-limit, limit)

    def send_statistics(self, upload: Upload) -> Upload:
        """Return the upload with W_new as the triangle of G^T G; its rows are clipped already."""
        if upload.covariance is None or not self.sends_triangles:
            return upload
        assert isinstance(upload.covariance, Tensor)
        rows = upload.covariance
        places = triangle(rows.shape[2], rows.device)
        return replace(upload, covariance=multiply(rows.mT, rows).flatten(1).index_select(1, places))

    def send(self, upload: Upload, known: Tensor | None) -> Upload:
        self._check_planned(upload)
        kept: dict[str, Any] = {}
        if upload.theta is not None:
            assert isinstance(upload.theta, Tensor) and known is not None
            kept["theta"] = known + _shorten(torch.nan_to_num(upload.theta - known), self._config.privacy_clip)
        if upload.content == "gradient":
            assert isinstance(upload.moments, Tensor)
            limit = self._gradient_clip(upload.iteration)
            kept["moments"] = _shorten(torch.nan_to_num(upload.moments), limit)
        elif self.sends_triangles and upload.content in (None, "statistics"):
            kept |= {"covariance": upload.covariance, "moments": upload.moments}
        return Upload(
            upload.agents, upload.iteration, upload.since, torch.full_like(upload.measure, torch.nan),
            trained=upload.trained, content=upload.content, exchange=upload.exchange,
            report={name: upload.report[name] for name in PUBLIC_REPORTS if name in upload.report}, **kept,
        )  # fmt: skip

    def _check_planned(self, upload: Upload) -> None:
        """Raise where the accounting has not counted a message."""
        releases, t = self.releases, upload.iteration
        first = 0 if upload.theta is not None else 1
        is_network = upload.theta is not None or upload.content == "gradient"
        planned = not is_network or upload.exchange - first < releases.network_exchanges.get(t, 0)
        if upload.covariance is not None and self.sends_triangles:
            planned = planned and t in releases.places
        if upload.content == "curvature" or not planned:
            raise RuntimeError(f"privacy: a message of iteration {t}, exchange {upload.exchange}, is not accounted for")

    def resize_upload(self, sizes: Sizes, contents: Contents, rows: int) -> Sizes:
        triangles = contents.covariances + contents.triangles
        return replace(sizes, matrices=triangles * self._matrices.triangle(self._parameters))

    def resize_download(self, sizes: Sizes, contents: Contents, rows: int, total: int) -> Sizes:
        return self.resize_upload(sizes, contents, rows)

    @staticmethod
    def count_noisy(config: Config) -> int:
        """Return the number of messages with noise in a sum over agents."""
        return 1

    def account(self, estimate: Estimate, like: Tensor) -> Account:
        if not self.sends_triangles:
            return super().account(estimate, like)
        releases = self.releases
        noise = REPLACED_SQUARE * self._config.privacy_feature_clip**2 * releases.statistics_noise
        factorization = releases.factorization(max(releases.sequences))
        noise *= self.count_noisy(self._config) ** 0.5
        return NoisyAccount(self._config, like, self._parameters, factorization, noise)

    # Noise

    def _gradient_clip(self, iteration: int) -> float:
        """Return the largest norm of an agent's sum of gradients: C times the observations that agents evaluate."""
        everyone = np.ones(self._config.agents, dtype=bool)
        limit = sample_limit(self._config, self.network_parameters)
        return self._config.privacy_clip * Sample(self._config, everyone, 0, iteration, limit).slots

    def _network_noise(self, upload: Upload, agents: range, count: int) -> np.ndarray:
        """Return the noise of one exchange, [agents, count]."""
        clip = self._gradient_clip(upload.iteration) if upload.content == "gradient" else self._config.privacy_clip
        key = upload.iteration + upload.exchange * (self._config.horizon + 1)
        drawn = normals(self._config.seed, Purpose.PRIVACY, agents, key, count)
        return drawn * (REPLACED * clip * self.releases.network_noise)

    def _statistics_noise(self, upload: Upload, agents: range) -> tuple[np.ndarray, np.ndarray]:
        """Return the noise of the triangle of W and of B that one step of a sequence adds, [agents, ..]."""
        sequence, step = self.releases.places[upload.iteration]
        self._draws = {key: drawn for key, drawn in self._draws.items() if key[0] == sequence}

        def draw(number: int) -> np.ndarray:
            key = sequence, number
            if key not in self._draws:
                self._draws[key] = normals(
                    self._config.seed, Purpose.PRIVACY, agents, CORRELATED + sequence * MOST_DRAWS + number,
                    len(self._scales),
                )  # fmt: skip
            return self._draws[key]

        length = self.releases.sequences[sequence]
        noise = self.releases.factorization(length).increment(step, draw) * self._scales
        return noise[:, : -self._parameters], noise[:, -self._parameters :]

    def _statistics_scales(self, parameters: int) -> np.ndarray:
        """Return the standard deviations of draws for the triangle of W, row by row, and for B.

        W and B are blocks of the sum of u u^T over rows u = (g, (L / R) y). Noise (G + G^T) / 2 with independent
        entries of G is isotropic in the Frobenius norm: entries beside the diagonal have half the variance.
        """
        clip, limit = self._config.privacy_feature_clip, self._config.privacy_reward_clip
        rows, columns = np.triu_indices(parameters)
        scales = np.r_[np.where(rows == columns, 1, np.sqrt(0.5)), np.full(parameters, np.sqrt(0.5) * limit / clip)]
        return scales * REPLACED_SQUARE * clip**2 * self.releases.statistics_noise


class LocalPrivacy(Privacy):
    """Every agent adds noise to what it sends: nobody else needs to be trusted."""

    @staticmethod
    def count_noisy(config: Config) -> int:
        return config.agents

    @classmethod
    def count_draws(cls, config: Config, parameters: int) -> int:
        longest = max(plan_releases(config).sequences, default=0)
        return longest * parameters * (parameters + 3) // 2

    def send_statistics(self, upload: Upload) -> Upload:
        bare = upload.covariance is None or not self.sends_triangles
        upload = super().send_statistics(upload)
        if bare:
            return upload
        covariance, moments = self._statistics_noise(upload, upload.agents)
        return replace(upload, covariance=_add(upload.covariance, covariance), moments=_add(upload.moments, moments))

    def send(self, upload: Upload, known: Tensor | None) -> Upload:
        upload = super().send(upload, known)
        name = "moments" if upload.content == "gradient" else "theta"
        values = getattr(upload, name)
        if values is None or (upload.content == "statistics"):
            return upload
        noise = self._network_noise(upload, upload.agents, values.shape[1])
        noisy: dict[str, Any] = {name: _add(values, noise)}
        return replace(upload, **noisy)


class CentralPrivacy(Privacy):
    """Noise is added once to the sum over agents: agents trust the one who sums, or a protocol that reveals sums only.

    It is a draw of its own, which no agent knows, not a sum of agents' shares, of which each would know its own.
    """

    def check_rule(self, rule: NetworkTraining | None, is_partial: bool) -> None:
        super().check_rule(rule, is_partial)
        if rule is not None and not rule.is_linear:
            raise ValueError(f"aggregation={self._config.aggregation!r}: privacy=central accepts mean")

    def receive(self, totals: dict[str, Any], upload: Upload) -> dict[str, Any]:
        whole = range(self._config.agents, self._config.agents + 1)
        changed: dict[str, Any] = {}
        if "theta" in totals:
            mean = totals["theta"]
            changed["theta"] = _add(mean, self._network_noise(upload, whole, mean.shape[1]) / self._config.agents)
        if upload.content == "gradient":
            total = totals["moments"]
            changed["moments"] = _add(total, self._network_noise(upload, whole, len(total))[0])
        elif isinstance(totals.get("covariance"), Triangle):
            covariance, moments = self._statistics_noise(upload, whole)
            changed["covariance"] = Triangle(_add(totals["covariance"].values, covariance[0]))
            changed["moments"] = _add(totals["moments"], moments[0])
        return totals | changed


def _shorten(vectors: Tensor, limit: float) -> Tensor:
    """Return vectors [.., p] scaled down to a norm of at most `limit`."""
    norms = vectors.double().norm(dim=-1, keepdim=True).clamp(min=limit)
    return (vectors * (limit / norms)).to(vectors)


def _add(values: Any, noise: np.ndarray) -> Tensor:
    """Return values with noise, in their precision."""
    assert isinstance(values, Tensor)
    return values + put_values(noise, values.device, values.dtype)
