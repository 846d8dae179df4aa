"""How much an upload counts in the server's averages, by how much has happened since its agent last heard of it."""

from __future__ import annotations

from fnbandit.config import Config


class Alike:
    """All uploads count the same."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def __call__(self, staleness: int) -> float:
        """The weight of an upload, others' exchanges with the server since its agent's last one being so many."""
        return 1.0


class Polynomial(Alike):
    """(1 + staleness)^-a, a = `staleness_power` (as Xie et al. 2019 weigh networks)."""

    def __call__(self, staleness: int) -> float:
        return (1.0 + staleness) ** -self._config.staleness_power
