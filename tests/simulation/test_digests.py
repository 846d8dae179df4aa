"""The results of 48 configs, as digests of an earlier version of the code: a refactoring changes no bit.

Last bits depend on the processor and on the libraries, so tests/data/digests has a file for each kind of machine. On a
machine of another kind `python -m tests.simulation.test_digests` writes its file; to a file with digests of fewer
configs it adds the others. The last 7 configs are asynchronous.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from fnbandit import Config, simulate

DATA = Path(__file__).parents[1] / "data"
CONFIGS = json.loads((DATA / "digest_configs.json").read_text())


def machine() -> dict[str, str]:
    """What decides last bits: a processor's name, its family and model (ARM: its maker and part), torch."""
    found = {"cpu": platform.machine()}
    names = {"model name": "cpu", "cpu family": "family", "model": "model", "CPU implementer": "family",
             "CPU part": "model"}  # fmt: skip
    cpuinfo = Path("/proc/cpuinfo")
    first = cpuinfo.read_text().partition("\n\n")[0] if cpuinfo.exists() else ""
    for line in first.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            found[names[name.strip()]] = value.strip()
    return found | {"vector": torch.backends.cpu.get_cpu_capability(), "torch": torch.__version__}


def digests_path() -> Path:
    """The file of this kind of machine."""
    kind = re.sub(r"[^a-z0-9.]+", "-", "-".join(machine().values()).lower())
    return DATA / "digests" / f"{kind}.json"


def digest(settings: dict) -> dict:
    """Digests of what a config's simulation does."""
    result = simulate(Config.from_record(settings))
    total = result.communication.total

    def of(array: np.ndarray | None) -> str:
        return "" if array is None else hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]

    return {
        "arms": of(result.arms),
        "rewards": of(result.rewards),
        "weight": of(result.alpha),
        "rounds": of(np.array(result.rounds)),
        "bytes": [total.messages_up, total.messages_down, total.bytes_up, total.bytes_down],
        "parameters": of(result.theta),
    }


RECORDED = json.loads(digests_path().read_text())["digests"] if digests_path().exists() else []
MISSING = pytest.param(
    len(RECORDED),
    id="missing",
    marks=pytest.mark.skip(
        reason=f"no digests of {len(CONFIGS) - len(RECORDED)} configs on {machine()}: "
        "`python -m tests.simulation.test_digests` writes them"
    ),
)


@pytest.mark.parametrize("place", [*range(len(RECORDED)), *([MISSING] if len(RECORDED) < len(CONFIGS) else [])])
def test_the_same_bits_as_before(place):
    assert digest(CONFIGS[place]) == RECORDED[place]


def write() -> None:
    """Write the digests that this kind of machine lacks."""
    found = {"machine": machine(), "digests": RECORDED + [digest(config) for config in CONFIGS[len(RECORDED) :]]}
    digests_path().write_text(json.dumps(found, indent=1) + "\n")
    print(digests_path())


if __name__ == "__main__":
    write()
