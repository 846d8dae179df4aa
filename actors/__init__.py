"""The agents and the server of fnbandit, living in Ray actors; checkpoints and recovery."""

from actors.checkpoints import CheckpointError
from actors.engine import Checkpointing, LocalRun, RayRun, SimulationError, simulate
from actors.layout import Options

__all__ = ["CheckpointError", "Checkpointing", "LocalRun", "Options", "RayRun", "SimulationError", "simulate"]
