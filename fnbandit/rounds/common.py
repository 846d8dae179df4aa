"""What synchronous rounds and single exchanges with the server have in common."""

from __future__ import annotations

from fnbandit.config import Config
from fnbandit.covariance import Lift
from fnbandit.registry import made
from fnbandit.rounds.channels import Exact
from fnbandit.rounds.messages import Contents
from fnbandit.rounds.triggers import Trigger


class Common:
    """How contexts become features, when agents communicate, in which form, and what they send and hear."""

    def __init__(self, config: Config, lift: Lift, parameters: int, up: Contents, down: Contents) -> None:
        self.lift = lift
        self.trigger: Trigger = made("trigger", config.trigger, config)
        self.channel: Exact = made("messages", config.messages, config, parameters, lift)
        self._up, self._down = up, down
