"""What can go wrong although the input is good; bad input is a ValueError."""


class SimulationError(RuntimeError):
    """A run that cannot go on; the text says why, with the remote traceback where there is one."""


class Interrupted(Exception):  # noqa: N818
    """The user has asked to stop; what is there can be resumed."""
