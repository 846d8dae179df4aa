"""The chain of channels that every upload passes, and the sizes of messages in its form (Sec. 3.4).

`messages = "factored, quantized"` is a chain of two links. An agent's upload passes them in this order:
`send_statistics` changes W_new and B_new before the agent updates its own V_local with them, so that agent and server
hold the same V_local; `send` changes the whole upload, with theta_i, alpha_i, the trigger's measure and the report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.config.registry import build, link_names
from fnbandit.core import Upload
from fnbandit.covariance import Lift, matrices
from fnbandit.federation.messages import Contents, Size
from fnbandit.numerics.device import put_values
from fnbandit.numerics.randomness import Purpose, uniforms
from fnbandit.numerics.state import State, add_prefix, remove_prefix


@dataclass(frozen=True)
class Sizes:
    """Numbers of one message by kind, and the bits that a number of each kind takes."""

    matrices: int
    vectors: int
    networks: int
    scalars: int
    real_bits: int
    """Bits of a number of a matrix or vector"""
    network_bits: int
    scalar_bits: int
    scales: int = 0
    """Further numbers of 32 bits"""

    def total(self) -> Size:
        """Return the sum of numbers and of bytes."""
        reals = self.matrices + self.vectors
        bits = reals * self.real_bits + self.networks * self.network_bits
        bits += self.scalars * self.scalar_bits + 32 * self.scales
        return Size(reals + self.networks + self.scalars + self.scales, -(-bits // 8))


class Channel:
    """One link of the chain; the base class passes everything on unchanged.

    A link may keep state per agent (first dimension: the agents): it is saved with the checkpoint.
    """

    follows: tuple[str, ...] = ()
    """Names of links that must precede it; missing ones are added"""

    network_parameters: int
    """Number of parameters of the network; the chain sets it"""

    def __init__(self, config: Config, parameters: int, lift: Lift) -> None:
        self._config, self._parameters, self._lift = config, parameters, lift
        self._matrices = matrices(config)

    def clip_rows(self, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [n, k, p] and their targets [n, k] as they enter W_new and B_new."""
        return rows, targets

    def send_statistics(self, upload: Upload) -> Upload:
        """Return the upload with W_new and B_new as the server receives them."""
        return upload

    def send(self, upload: Upload, known: Tensor | None) -> Upload:
        """Return the upload as the server receives it; `known` is theta_sync [p], which agent and server hold."""
        return upload

    def receive(self, totals: dict[str, Any], upload: Upload) -> dict[str, Any]:
        """Return the sums over all agents, by field of `Upload`, as the server receives them.

        `upload` is that of any batch: sums of W and B, theta averaged to [1, p] or that of all agents.
        """
        return totals

    def resize_upload(self, sizes: Sizes, contents: Contents, rows: int) -> Sizes:
        """Return the sizes of an upload with `rows` new rows behind this link."""
        return sizes

    def resize_download(self, sizes: Sizes, contents: Contents, rows: int, total: int) -> Sizes:
        """Return the sizes of a download after `rows` new rows per agent and `total` in all."""
        return sizes

    def state(self) -> State:
        """Return all that `load` needs to continue with the same bits."""
        return {}

    def load(self, state: State) -> None:
        """Continue from a `state`."""


class Exact(Channel):
    """Sends everything as Algorithms 1 and 2 list it: a full matrix is p^2 numbers, a diagonal one p.

    The ledger counts these numbers, whatever this implementation moves between its processes.
    """


class Factored(Channel):
    """Sends matrices as triangular factors of new rows where these have fewer numbers; equal up to rounding.

    Up, W_new = R^T R travels as the factor R of its k rows, k (2 p - k + 1) / 2 numbers, and V_local^-1 does not
    travel: it follows from the factors that the server has received from the agent. Down, W_sync travels as the
    factor of the round's rows, a mean of inverses as its triangle, and every single inverse as the factor that
    changed it.
    """

    def send_statistics(self, upload: Upload) -> Upload:
        if upload.covariance is None:
            return upload
        return replace(upload, covariance=self._matrices.triangular_factor(_tensor(upload.covariance), self._lift))

    def resize_upload(self, sizes: Sizes, contents: Contents, rows: int) -> Sizes:
        kind = self._matrices
        factors = (contents.covariances + contents.triangles) * kind.factor(self._parameters, rows)
        return replace(sizes, matrices=factors + contents.curvatures * kind.factor(self.network_parameters, rows))

    def resize_download(self, sizes: Sizes, contents: Contents, rows: int, total: int) -> Sizes:
        kind, p = self._matrices, self._parameters
        inverses = kind.triangle(p) if contents.inverses == 1 else contents.inverses * kind.factor(p, rows)
        covariances = contents.covariances * kind.factor(p, total)
        triangles = contents.triangles * kind.triangle(p)
        return replace(sizes, matrices=covariances + triangles + (inverses if contents.inverses else 0))


class Quantized(Channel):
    """Rounds numbers of an upload to `message_bits` each, up or down at random so that they are unbiased.

    An agent rounds the factor R, B_new and theta_i - theta_sync, each to multiples of its largest entry over
    2^(bits - 1) - 1, which it sends along. It updates its own V_local with the rounded rows, as the server does.
    Downloads are not rounded.
    """

    follows = ("factored",)

    def send_statistics(self, upload: Upload) -> Upload:
        key = self._key(upload)
        if upload.covariance is not None:
            rows = _tensor(upload.covariance)
            upload = replace(upload, covariance=self._round(upload.agents, key, rows.flatten(1)).view_as(rows))
        if upload.moments is not None:
            upload = replace(upload, moments=self._round(upload.agents, key + 1, _tensor(upload.moments)))
        return upload

    def send(self, upload: Upload, known: Tensor | None) -> Upload:
        if upload.theta is None or known is None:
            return upload
        change = self._round(upload.agents, self._key(upload) + 2, _tensor(upload.theta) - known)
        return replace(upload, theta=known + change)

    def _key(self, upload: Upload) -> int:
        """Return the first of the three keys of an upload's draws."""
        return 3 * (upload.iteration + upload.exchange * (self._config.horizon + 1))

    def _round(self, agents: range, key: int, values: Tensor) -> Tensor:
        """Round values [n, r] to whole steps of each agent's scale; the draws are a function of (agent, key)."""
        draws = uniforms(self._config.seed, Purpose.MESSAGES, agents, key, values.shape[1])
        levels = 2 ** (self._config.message_bits - 1) - 1
        step = values.abs().amax(dim=1, keepdim=True) / levels
        step = step.where(step > 0, 1)
        return (values / step + put_values(draws, values.device, values.dtype)).floor_().mul_(step)

    def resize_upload(self, sizes: Sizes, contents: Contents, rows: int) -> Sizes:
        bits, scales = self._config.message_bits, contents.covariances + contents.vectors + contents.networks
        return replace(sizes, real_bits=bits, network_bits=bits, scales=sizes.scales + scales)


def _tensor(values: Tensor | list[Tensor] | None) -> Tensor:
    assert isinstance(values, Tensor)
    return values


class Chain:
    """The link of `privacy`, then those that `messages` names, in order."""

    def __init__(self, config: Config, parameters: int, lift: Lift, network_parameters: int | None = None) -> None:
        """`parameters` is the length of a feature row; `network_parameters` that of theta, None for the same."""
        self._config, self._parameters = config, parameters
        self._network_parameters = parameters if network_parameters is None else network_parameters
        self.privacy = build("privacy", config.privacy, config, parameters, lift)
        """The first link: it clips what leaves, and adds noise"""
        named = [build("messages", name, config, parameters, lift) for name in link_names(config.messages)]
        self.links: list[Channel] = [self.privacy, *named]
        for link in self.links:
            link.network_parameters = self._network_parameters

    def clip_rows(self, rows: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Pass rows and targets through all links, before W_new and B_new are summed."""
        for link in self.links:
            rows, targets = link.clip_rows(rows, targets)
        return rows, targets

    def send_statistics(self, upload: Upload) -> Upload:
        """Pass W_new and B_new through all links."""
        for link in self.links:
            upload = link.send_statistics(upload)
        return upload

    def send(self, upload: Upload, known: Tensor | None) -> Upload:
        """Pass the whole upload through all links."""
        for link in self.links:
            upload = link.send(upload, known)
        return upload

    def receive(self, totals: dict[str, Any], upload: Upload) -> dict[str, Any]:
        """Pass the sums over all agents through all links."""
        for link in self.links:
            totals = link.receive(totals, upload)
        return totals

    def size_upload(self, contents: Contents, rows: int) -> Size:
        """Return the size of one agent's upload with `rows` new rows."""
        sizes = self._exact(contents)
        for link in self.links:
            sizes = link.resize_upload(sizes, contents, rows)
        return sizes.total()

    def size_download(self, contents: Contents, rows: int, total: int | None = None) -> Size:
        """Return the size of a download after `rows` new rows per agent, `total` in all (None: N times as many)."""
        sizes = self._exact(contents)
        for link in self.links:
            sizes = link.resize_download(sizes, contents, rows, rows * self._config.agents if total is None else total)
        return sizes.total()

    def _exact(self, contents: Contents) -> Sizes:
        """Return the sizes of a message as Algs. 1 and 2 list it."""
        p, real = self._parameters, 8 * getattr(torch, self._config.statistics_dtype).itemsize
        single = 8 * getattr(torch, self._config.network_dtype).itemsize
        kind, q = matrices(self._config), self._network_parameters
        whole = (contents.covariances + contents.inverses) * kind.numbers(p) + contents.triangles * kind.triangle(p)
        whole += contents.curvatures * kind.triangle(q)
        return Sizes(whole, contents.vectors * p, contents.networks * q, contents.scalars, real, single, real)

    def state(self) -> State:
        """Return the states of all links but the first, which has none: its noise is a function of the seed."""
        states = [add_prefix(str(place), link.state()) for place, link in enumerate(self.links[1:])]
        return {name: tensor for state in states for name, tensor in state.items()}

    def load(self, state: State) -> None:
        """Continue from a `state`."""
        for place, link in enumerate(self.links[1:]):
            link.load(remove_prefix(str(place), state))
