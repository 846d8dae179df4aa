"""Ray starts while torch is imported: each of them takes seconds."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fnbandit.registry import ENVIRONMENTS
from workflows.study import Study


@contextmanager
def early_cluster(study: Study) -> Iterator[None]:
    """The cluster that a study will ask for, started or joined before the study is checked, for which torch is needed.

    Only for studies that are unlikely to be refused when they are checked: new ones, on tasks that are shipped.
    """
    new = not study.uri and not (study.directory / "study.json").exists()
    shipped = all(p.config.environment in ENVIRONMENTS and p.config.device == "auto" for p in study.points)
    if study.settings.engine != "ray" or not new or not shipped:
        yield
        return
    # Ray in the main thread: it sets signal handlers, and Linux ends its processes with the thread that started them.
    threading.Thread(target=importlib.import_module, args=("torch",), name="fnbandit-torch", daemon=True).start()
    from actors.cluster import cluster

    with cluster(study.settings.options()):
        yield
