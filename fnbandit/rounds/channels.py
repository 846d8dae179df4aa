"""In which form messages travel, and how large that makes them (Sec. 3.4)."""

from __future__ import annotations

import torch
from torch import Tensor

from fnbandit.config import Config
from fnbandit.covariance import Lift, matrices
from fnbandit.randomness import Purpose, uniforms
from fnbandit.rounds.messages import Contents, Size


class Exact:
    """Everything as Algorithms 1 and 2 list it: a full matrix is p^2 numbers, a diagonal one p.

    The ledger counts that, whatever this implementation moves between its processes. Other forms override
    what they change: `rows`, `moments` and `theta` say what arrives of what an agent sends, `up` and `down` how
    large a message is.
    """

    def __init__(self, config: Config, parameters: int, lift: Lift) -> None:
        self._config, self._parameters, self._lift = config, parameters, lift
        self._matrices = matrices(config)
        self._real = getattr(torch, config.statistics_dtype).itemsize
        self._single = getattr(torch, config.network_dtype).itemsize

    def rows(self, agents: range, iteration: int, news: Tensor) -> Tensor:
        """What arrives of W_new of some agents."""
        return news

    def moments(self, agents: range, iteration: int, moments: Tensor) -> Tensor:
        """What arrives of B_new [n, p]."""
        return moments

    def theta(self, agents: range, iteration: int, theta: Tensor, known: Tensor) -> Tensor:
        """What arrives of theta_i [n, p], given what server and agents know already, [p]."""
        return theta

    def up(self, contents: Contents, rows: int) -> Size:
        """The size of one agent's upload with so many new rows."""
        return self._whole(contents)

    def down(self, contents: Contents, rows: int, total: int | None = None) -> Size:
        """The size of a broadcast in a round that brought so many new rows per agent, `total` in all.

        Without it all agents have brought as many.
        """
        return self._whole(contents)

    def _whole(self, contents: Contents) -> Size:
        matrix = self._matrices.numbers(self._parameters)
        return self._size(contents, (contents.covariances + contents.inverses) * matrix)

    def _size(self, contents: Contents, matrices: int) -> Size:
        reals = matrices + contents.vectors * self._parameters + contents.scalars
        singles = contents.networks * self._parameters
        return Size(reals + singles, reals * self._real + singles * self._single)


class Factored(Exact):
    """Matrices as triangular factors of what is new where they are fewer numbers; the same choices to rounding.

    Up, W_new = R^T R goes as the factor R of its k rows, k (2 p - k + 1) / 2 numbers, and V_local^-1 does not go at
    all: it follows from the factors that the server has had from the agent. Down, W_sync goes as the factor of the
    round's N k rows; a mean of inverses as its triangle; and every single inverse as the factor that changed it.
    """

    def rows(self, agents: range, iteration: int, news: Tensor) -> Tensor:
        return self._matrices.rotate(news, self._lift)

    def up(self, contents: Contents, rows: int) -> Size:
        return self._size(contents, contents.covariances * self._matrices.factor(self._parameters, rows))

    def down(self, contents: Contents, rows: int, total: int | None = None) -> Size:
        kind, p = self._matrices, self._parameters
        inverses = kind.triangle(p) if contents.inverses == 1 else contents.inverses * kind.factor(p, rows)
        factor = kind.factor(p, rows * self._config.agents if total is None else total)
        return self._size(contents, contents.covariances * factor + (inverses if contents.inverses else 0))


class Quantized(Factored):
    """What agents send is rounded to `message_bits` per number, up or down by chance so that its mean is right.

    An agent rounds the factor R, B_new and theta_i - theta_sync,NN, each to multiples of its largest entry over
    2^(bits - 1) - 1, which it sends along. It keeps its own V_local with the rounded rows, as the server knows them.
    What the server sends is not rounded.
    """

    def rows(self, agents: range, iteration: int, news: Tensor) -> Tensor:
        rows = super().rows(agents, iteration, news)
        return self._rounded(agents, 3 * iteration, rows.flatten(1)).view_as(rows)

    def moments(self, agents: range, iteration: int, moments: Tensor) -> Tensor:
        return self._rounded(agents, 3 * iteration + 1, moments)

    def theta(self, agents: range, iteration: int, theta: Tensor, known: Tensor) -> Tensor:
        return known + self._rounded(agents, 3 * iteration + 2, theta - known)

    def _rounded(self, agents: range, key: int, values: Tensor) -> Tensor:
        """Values [n, r], rounded to whole steps of each agent's scale; the draws are a function of (agent, key)."""
        draws = uniforms(self._config.seed, Purpose.MESSAGES, agents, key, values.shape[1])
        levels = 2 ** (self._config.message_bits - 1) - 1
        step = values.abs().amax(dim=1, keepdim=True) / levels
        step = step.where(step > 0, 1)
        return (values / step + torch.from_numpy(draws).to(values)).floor_().mul_(step)

    def up(self, contents: Contents, rows: int) -> Size:
        numbers = super().up(contents, rows).numbers
        rounded = numbers - contents.scalars
        scales = contents.covariances + contents.vectors + contents.networks
        bits = rounded * self._config.message_bits + 32 * scales + 8 * self._real * contents.scalars
        return Size(numbers + scales, -(-bits // 8))
