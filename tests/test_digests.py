"""The results of 41 configs, as digests taken before the code was rearranged: a refactoring changes no bit.

Last bits depend on the processor and on the libraries, so elsewhere than on the kind of machine where the
digests were taken only what rounding cannot change is compared.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fnbandit import Config, simulate

RECORDED = json.loads((Path(__file__).parent / "data" / "digests.json").read_text())


def machine() -> dict[str, str]:
    """What decides last bits."""
    models = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
              if line.startswith("model name")]  # fmt: skip
    return {"cpu": models[0], "torch": torch.__version__, "vector": torch.backends.cpu.get_cpu_capability()}


def digest(settings: dict) -> dict:
    """Digests of what a config's simulation does."""
    result = simulate(Config(**settings))
    total = result.communication.total

    def of(array: np.ndarray | None) -> str:
        return "" if array is None else hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]

    return {
        "arms": of(result.arms),
        "rewards": of(result.rewards),
        "weight": of(result.weight),
        "rounds": of(np.array(result.rounds)),
        "bytes": [total.messages_up, total.messages_down, total.bytes_up, total.bytes_down],
        "parameters": of(result.theta),
    }


@pytest.mark.parametrize("case", RECORDED["cases"], ids=range(len(RECORDED["cases"])))
def test_the_same_bits_as_before(case):
    if machine() != RECORDED["machine"]:
        pytest.skip(f"digests are of {RECORDED['machine']}, this is {machine()}")
    found = digest(case["config"])
    assert found == {name: case[name] for name in found}
