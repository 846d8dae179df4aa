import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_torch_thread():
    """What is compared bit by bit runs as simulations run: on one thread."""
    from fnbandit.simulation import one_thread

    with one_thread():
        yield
