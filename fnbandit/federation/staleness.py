"""Weights of uploads in the server's averages by staleness: rounds of other agents since the agent's last one."""

from __future__ import annotations

from fnbandit.config import Config


class Unweighted:
    """All uploads have weight 1."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, staleness: int) -> float:
        """Return the weight of an upload."""
        return 1.0


class Polynomial(Unweighted):
    """(1 + staleness)^-a, a = `staleness_power` (as Xie et al. 2019 weigh networks)."""

    def __call__(self, staleness: int) -> float:
        return (1.0 + staleness) ** -self._config.staleness_power
