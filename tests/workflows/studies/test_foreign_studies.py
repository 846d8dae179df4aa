"""Somebody else's folder is only read: nothing is imported, run, written or told that nobody asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from test_trust import SMALL, in_a_directory_of_its_own, one_line, tampered, unfinish  # noqa: F401

from fnbandit.storage.checkpoints import CHECKPOINT_FOLDER
from workflows.command_line import main

EVIL = "from pathlib import Path\nPath('imported').touch()\ndef reward(x):\n    return x[:, 0]\n"

DRAWN, UNTRACKED = SMALL[:-1], SMALL[:-3]
"""With figures; with figures and the default tracker"""


def test_a_foreign_study_imports_nothing_unasked(tmp_path, capsys, monkeypatch):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    (tmp_path / "foreign_module.py").write_text(EVIL)
    tampered("here", environment="foreign_module:reward")
    unfinish("here")
    capsys.readouterr()
    assert main(["resume", "here"]) == 2
    assert "study.json: imports environment=foreign_module:reward; --trust allows it" in one_line(capsys)
    for argv in (["report", "here"], ["resume", "here"]):
        main(argv)
    assert not (tmp_path / "imported").exists()
    assert main(["resume", "here", "--trust"]) == 0
    assert (tmp_path / "imported").exists()
    (tmp_path / "imported").unlink()
    monkeypatch.delitem(sys.modules, "foreign_module")
    assert main(["report", "here"]) == 0, "a run's config is read without its modules"
    assert not (tmp_path / "imported").exists() and "foreign_module" not in sys.modules


def test_a_foreign_study_imports_no_tracker_unasked(tmp_path, capsys):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    base = "from workflows.tracking.base import Tracker\nclass Mine(Tracker):\n    pass\n"
    (tmp_path / "foreign_tracker.py").write_text(EVIL + base)
    tampered("here", settings={"tracking": "foreign_tracker:Mine"})
    unfinish("here")
    capsys.readouterr()
    assert main(["resume", "here"]) == 2
    assert "study.json: imports tracking=foreign_tracker:Mine; --trust allows it" in one_line(capsys)
    assert main(["report", "here"]) == 2, "no run is there"
    assert not (tmp_path / "imported").exists()
    assert main(["resume", "here", "--trust"]) == 0
    assert (tmp_path / "imported").exists()


def test_a_prompt_on_a_terminal(tmp_path, capsys, monkeypatch):
    import io

    assert main(["run", *SMALL, "--out", "here", "--checkpoint", "elsewhere"]) == 0

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for answer, code in (("n\n", 2), ("", 2), ("y\n", 0)):
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        monkeypatch.setattr("sys.stderr", Terminal())
        assert main(["resume", "here"]) == code, answer


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("checkpoint", "thesis", "writes checkpoints to thesis"),
        ("checkpoint", "s3://bucket/x", "writes checkpoints to s3://bucket/x"),
        ("tracking_uri", "http://evil.example", "sends its results to http://evil.example"),
        ("address", "1.2.3.4:6379", "joins the Ray cluster at 1.2.3.4:6379"),
    ],
)
def test_places_of_a_foreign_study_are_asked_for(tmp_path, capsys, setting, value, words):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    tampered("here", settings={setting: value})
    unfinish("here")
    capsys.readouterr()
    assert main(["resume", "here"]) == 2
    assert f"{words}; --trust allows it" in one_line(capsys)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter"]


def test_places_inside_the_folder_or_from_the_command_line_need_no_trust(tmp_path):
    assert main(["run", *SMALL, "--out", "here", "--checkpoint", "here/inside"]) == 0
    assert main(["resume", "here"]) == 0
    tampered("here", settings={"checkpoint": "thesis"})
    unfinish("here")
    assert main(["resume", "here", "--checkpoint", "mine"]) == 0
    assert not (tmp_path / "thesis").exists()


@pytest.mark.parametrize(
    "path", ["../out", "/tmp/fnbandit-out", "a/../../out", "", "a//b", "a\\b", "a\0b", 3, None, "./a"]
)
def test_runs_stay_in_their_studys_folder(tmp_path, capsys, path):
    assert main(["run", *SMALL, "--out", "here"]) == 0
    tampered("here", point={"path": path})
    capsys.readouterr()
    assert main(["resume", "here", "--trust"]) == 2
    assert "study.json: cannot be read" in one_line(capsys)
    assert not (tmp_path / "out").exists()


def test_links_do_not_lead_out_of_the_folder(tmp_path, capsys):
    assert main(["run", *DRAWN, "--out", "here"]) == 0
    (tmp_path / "thesis").mkdir()
    precious = tmp_path / "thesis" / "chapter"
    precious.write_text("years of work")
    unfinish("here")
    for name in ("trace.arrows", "summary.json.part", "config.toml", "trace.parquet.part"):
        (tmp_path / "here" / name).unlink(missing_ok=True)
        (tmp_path / "here" / name).symlink_to(precious)
    (tmp_path / "here" / "figures" / "regret.png").unlink()
    (tmp_path / "here" / "figures" / "regret.png").symlink_to(precious)
    assert main(["resume", "here"]) == 0
    assert precious.read_text() == "years of work"


def link_to_thesis(tmp_path, path):
    """Put a link at a path in the place of what is there; it leads to somebody's folder, or to a file in it."""
    thesis = tmp_path / "thesis"
    thesis.mkdir(exist_ok=True)
    (thesis / "chapter").write_text("years of work")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rename(tmp_path / "aside")
    path.unlink(missing_ok=True)
    path.symlink_to(thesis / "chapter" if path.suffix else thesis)


def untouched(tmp_path):
    thesis = tmp_path / "thesis"
    return [path.name for path in thesis.iterdir()] == ["chapter"] and (thesis / "chapter").read_text() == (
        "years of work"
    )


RESUME, REPORT, OVERWRITE = ["resume", "here"], ["report", "here"], ["sweep", *SMALL[2:], "--agents", "2,3"]


@pytest.mark.parametrize(
    ("argv", "link"),
    [
        (RESUME, "agents=2"),
        (RESUME, f"agents=2/seed=0/{CHECKPOINT_FOLDER}"),
        (REPORT, "figures"),
        ([*OVERWRITE, "--out", "here"], "agents=2/seed=0"),
        ([*OVERWRITE, "--out", "here", "--overwrite"], "agents=2/seed=0"),
        ([*OVERWRITE, "--out", "here", "--overwrite"], "figures"),
    ],
)
def test_folders_that_are_links_out_of_the_study_are_refused(tmp_path, capsys, argv, link):
    assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 0
    (tmp_path / "here" / "figures").mkdir()
    (tmp_path / "here" / "agents=2" / "seed=0" / "summary.json").unlink()
    link_to_thesis(tmp_path, tmp_path / "here" / link)
    capsys.readouterr()
    assert main([*argv, "--trust"] if argv == RESUME else argv) in (1, 2)
    assert "a link leads out of the study's folder" in capsys.readouterr().err
    assert untouched(tmp_path)


@pytest.mark.parametrize("link", ["table.csv", "report.html", "study.json.part", "agents=2/seed=0/log.txt",
                                  f"agents=2/seed=0/{CHECKPOINT_FOLDER}/OWNER.txt.part"])  # fmt: skip
def test_files_that_are_links_are_replaced(tmp_path, link):
    assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 0
    (tmp_path / "here" / "agents=2" / "seed=0" / "summary.json").unlink()
    link_to_thesis(tmp_path, tmp_path / "here" / link)
    assert main(["resume", "here"]) == 0
    assert main(["report", "here"]) == 0
    assert untouched(tmp_path)


def test_a_study_whose_own_folder_is_a_link_is_written_there(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "here").symlink_to(tmp_path / "scratch")
    assert main(["sweep", *DRAWN[2:], "--agents", "2,3", "--out", "here"]) == 0
    assert (tmp_path / "scratch" / "report.html").exists()


def test_a_builtin_part_puts_no_folder_on_the_path(tmp_path, monkeypatch):
    from fnbandit.config.registry import resolve_part

    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    resolve_part("algorithm", "linear-ucb")
    assert str(tmp_path) not in sys.path


SECRETS = ["http://me:hunter2@host:5000", "postgresql+psycopg2://me:hunter2@host/db", "http://host/?token=hunter2&x=1",
           "s3://AKIA:hunter2@bucket/x?region=eu", "http://me:a@hunter2@host/",
           "https://h/x?api_key=hunter2", "http://hunter2@host:5000", "http://me:a/hunter2@host/x", "http://h/?auth=hunter2",
           "http://h/?pass=hunter2", "http://h/#token=hunter2", "me:hunter2@host:6379", "s3://AKIA:a/hunter2@bucket/x",
           "http://hunter2:x-oauth-basic@host", "http://me:hunter2@[::1"]  # fmt: skip


@pytest.mark.parametrize("uri", SECRETS)
def test_passwords_are_masked(uri):
    from workflows.terminal.secrets import mask_secrets

    for text in (uri, f"tracking_uri={uri!r}: no answer"):
        assert "hunter2" not in mask_secrets(text) and "***" in mask_secrets(text)
        assert mask_secrets(mask_secrets(text)) == mask_secrets(text)
    for plain in (
        "http://host/a@b",
        "http://127.0.0.1:5000/#/experiments/1/runs?workflowType=x",
        "sqlite:////tmp/mlflow.db",
        "s3://bucket/x?region=eu",
        "a:b@c",
    ):
        assert mask_secrets(plain) == plain


def test_a_masked_address_keeps_its_scheme_and_host():
    from workflows.terminal.secrets import mask_secrets

    assert mask_secrets("no answer from http://hunter2@127.0.0.1:5000") == "no answer from http://***@127.0.0.1:5000"
    assert mask_secrets("postgresql://me:hunter2@host:5432/db") == "postgresql://***@host:5432/db"


@pytest.mark.parametrize(
    ("flag", "value"),
    [("tracking-uri", "http://me:my hunter2@host"), ("out", "s3://me:a hunter2@b/x"), ("address", "me:hunter2@h:1")],
)
def test_a_place_that_cannot_be_read_is_not_shown(tmp_path, capsys, flag, value):
    assert main(["run", *UNTRACKED, f"--{flag}", value]) == 2
    assert f"{flag.replace('-', '_')}: cannot be read, and may contain a password" in one_line(capsys)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_passwords_are_printed_and_kept_nowhere(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    command = [sys.executable, "-m", "workflows.run", *UNTRACKED, "--no-figures", "--out", "here"]
    command += ["--tracking-uri", "http://me:hunter2@127.0.0.1:9", "--checkpoint-seconds", "0.001"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "***@127.0.0.1:9" in done.stderr, "the server that is down is told of"
    assert "hunter2" not in done.stdout + done.stderr
    for path in (tmp_path / "here").rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path
    assert main(["resume", "here"]) == 2
    printed = capfd.readouterr().err
    assert "its password is not kept; give it again as --tracking-uri or in MLFLOW_TRACKING_URI" in printed
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:hunter2@127.0.0.1:9")
    assert main(["resume", "here"]) == 0
    assert main(["run", *SMALL, "--out", "there", "--checkpoint", "gopher://me:hunter2@host/x"]) == 2
    printed = capfd.readouterr()
    assert "gopher://***@host" in printed.err and "hunter2" not in printed.out + printed.err


def test_runs_that_stood_in_the_folder_are_not_carried_out_unasked(tmp_path, capsys):
    assert main(["sweep", *SMALL[2:], "--agents", "2,3", "--out", "here"]) == 0
    (tmp_path / "foreign_module.py").write_text(EVIL)
    tampered("here", environment="foreign_module:reward")
    (tmp_path / "here" / "agents=2" / "seed=0" / "summary.json").unlink()
    capsys.readouterr()
    assert main(["sweep", *SMALL[2:], "--agents", "3,4", "--out", "here"]) == 2
    assert "holds other runs, too: imports environment=foreign_module:reward" in capsys.readouterr().err
    assert not (tmp_path / "imported").exists()
