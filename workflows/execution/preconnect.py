"""Starts Ray while torch is imported, because each takes seconds."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fnbandit.config.registry import ENVIRONMENTS
from fnbandit.storage.files import STUDY_FILE
from workflows.studies.study import StudyPlan


@contextmanager
def early_cluster(study: StudyPlan) -> Iterator[None]:
    """Start or join the cluster of a study before the study is checked, which needs torch.

    Only for studies that the check is unlikely to refuse: new ones, on shipped tasks.
    """
    new = not study.uri and not (study.directory / STUDY_FILE).exists()
    shipped = all(p.config.environment in ENVIRONMENTS and p.config.device == "auto" for p in study.points)
    if study.settings.engine != "ray" or not new or not shipped:
        yield
        return
    # Ray in the main thread: it sets signal handlers, and Linux ends its processes with the thread that started them.
    threading.Thread(target=_import_torch, name="fnbandit-torch", daemon=True).start()
    from actors.cluster import cluster

    with cluster(study.settings.options()):
        yield


def _import_torch() -> None:
    """Import torch ahead of its use; a process that ends meanwhile, because of a bad address, says nothing of it."""
    with suppress(Exception):
        importlib.import_module("torch")
