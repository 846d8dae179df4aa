"""Agents and server in Ray actors: layout, transport, recovery. How to run on a cluster.

Set RAY_AUTH_MODE=token in every shell (head, other nodes, where jobs are submitted), and make a token once with `ray
get-auth-token --generate`: it writes ~/.ray/auth_token, which all nodes need. The dashboard asks for the token in its
page: `ray get-auth-token` prints it. `ray up
workflows/clusters/cluster.yaml` starts machines that are reached by ssh (edit their names first), `ray dashboard
workflows/clusters/cluster.yaml` forwards port 8265, `kubectl apply -f workflows/clusters/rayjob.yaml` is for the
KubeRay operator. By hand: `ray start --head`, and `ray start --address=HEAD:6379` on the other nodes, whose Python
needs this project's dependencies. `python -m workflows.run`, `.sweep`, `.reproduce`, `.resume` and `.report` are the
commands of jobs. A job joins the cluster that it runs on; elsewhere `RAY_ADDRESS` or `--address` names one.

A job prints first where its records, checkpoints and MLflow store go. It does not start if they would be deleted with
its working directory: pass `--out` and `--tracking-uri`. The summary and MLflow's tags have its submission id.

A cluster that a run starts for itself listens on loopback only, requires a token, and keeps its files readable for
its user only. Ray binds the ports of other clusters (6379 of the head, object managers, raylets, workers, 10001 for
clients) to every interface: put a firewall around their nodes.

`--agents-per-actor 1` is one actor per agent, on a laptop, too. An actor requests one CPU where the cluster has it,
else the share that fits (`--cpus-per-actor`; with `--device cuda` the same for GPUs), as far as memory allows. `auto`
chooses the layout that finishes the study first by the cost model: a whole run in one actor, which hosts run after
run, or the agents of a long run in several. The summary names the layout; the bits are the same. A study waits for
free resources and reports that it is waiting, uses nodes that join, and loses with a node no more than the work since
the last checkpoint.

Server and agents call each other through a compiled graph of Ray, whose channels stay open: 1 ms a round trip, one
call per actor and exchange; who waits for a message sleeps (`waiting.py`). The names of this package are imported at
their first use: `import actors` loads neither torch nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.options import Options
    from actors.run import RayRun

__all__ = ["Options", "RayRun"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("actors.options" if name == "Options" else "actors.run"), name)
