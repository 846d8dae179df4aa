"""The parts of communication that both kinds of replica hold."""

from __future__ import annotations

from fnbandit.config import Config
from fnbandit.config.registry import build
from fnbandit.covariance import Lift
from fnbandit.federation.channels import Chain
from fnbandit.federation.messages import Contents
from fnbandit.federation.triggers import Trigger


class CommunicationParts:
    """Features of contexts, the trigger, the chain of channels, and the contents of messages up and down."""

    def __init__(
        self,
        config: Config,
        lift: Lift,
        parameters: int,
        up: Contents,
        down: Contents,
        network_parameters: int | None = None,
    ) -> None:
        self.lift = lift
        self.parameters = parameters
        self.trigger: Trigger = build("trigger", config.trigger, config)
        self.chain = Chain(config, parameters, lift, network_parameters)
        """Computes sizes; every batch of agents has its own chain, with its state"""
        self.up, self.down = up, down
