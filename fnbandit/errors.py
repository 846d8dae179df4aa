"""What can go wrong although the input is good; bad input is a ValueError."""


class SimulationError(RuntimeError):
    """A run that cannot go on; the text says why, with the remote traceback where there is one."""
