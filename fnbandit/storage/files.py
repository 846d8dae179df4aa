"""Names of the files that fnbandit writes into the folders of runs and studies.

Every list of files (to copy, to remove, to attach, to reuse) is built from the names below. Every function that writes
or deletes a file calls `check_inside` first.
"""

from __future__ import annotations

from pathlib import Path

MAKER = "fnbandit (its own figure)"
"""Creator in the metadata of every figure, so that only fnbandit's own figures are deleted"""

STUDY_FILE = "study.json"
CONFIG_FILE = "config.toml"
SUMMARY_FILE = "summary.json"
LOG_FILE = "log.txt"
REPORT_FILE = "report.html"
TOTALS_FILE = "table.csv"
LOCK_FILE = "fnbandit.lock"
FIGURES_FOLDER = "figures"
MLFLOW_FILE = "mlflow.json"
"""Names the MLflow run of the folder's run or study"""
JSONL_FILE = "tracking.jsonl"
TABLE_FILES = ("trace.parquet", "rounds.parquet")
"""Tables of a finished run"""
STREAM_FILES = ("trace.arrows", "rounds.arrows")
"""Tables of a run that is not finished"""

TRACKER_FILES = (MLFLOW_FILE, JSONL_FILE)
RESULT_FILES = (CONFIG_FILE, *TABLE_FILES, SUMMARY_FILE)
"""Results of a finished run, which trackers attach to it"""
REUSED_FILES = (CONFIG_FILE, *TABLE_FILES, LOG_FILE)
"""Files that a study copies from another study's run; the study writes a new summary"""
MIRRORED_FILES = (
    STUDY_FILE, CONFIG_FILE, LOG_FILE, *TRACKER_FILES, REPORT_FILE, TOTALS_FILE, *TABLE_FILES, SUMMARY_FILE,
)  # fmt: skip
"""Files of a folder that are copied to a URI, in this order; the summary is last, because it marks a complete run"""
CLEARED_FILES = (
    *(name for name in MIRRORED_FILES if name != STUDY_FILE),
    *STREAM_FILES,
    *(f"{name}.part" for name in TABLE_FILES),
)
"""Files of a folder that --overwrite removes before it removes study.json"""


def check_inside(path: Path) -> None:
    """Raise a one-line ValueError where a link leads out of a study's folder, between that folder and a file in it."""
    absolute = path.absolute()
    for folder in absolute.parents:
        if (folder / STUDY_FILE).exists() and not absolute.parent.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{path}: a link leads out of the study's folder {folder}, to {absolute.parent.resolve()}; "
                "remove the link"
            )
