"""Studies on disk: plans, settings, extension, reuse, locks, mirrors, trust. Files and guarantees of a study's folder.

A sweep is a product of lists; each run has a folder (`agents=5/threshold=4.0/seed=0`) with `config.toml`,
`trace.parquet` (a row per iteration and agent), `rounds.parquet` (a row per round), `summary.json`, `log.txt`. A
running trace is an Arrow IPC stream. `study.json` holds the plan from which `resume` continues.

- A run that fails is named, the others continue, and `resume` tries it again. The same command continues where it
  stopped; one with more seeds or values adds them; one with another config is refused and names the difference;
  `--overwrite` starts anew.
- Checkpoints (safetensors and JSON, every 30 seconds at a round) let a run continue with the same bits after Ctrl-C,
  a crash or a lost node. A stop loses the time since the last checkpoint and nothing else. A run is "finished" once
  every row has been read back from the disk.
- A process that does not answer for `--actor-timeout` seconds ends the run with a line that names it; a busy server
  is pinged first. Ctrl-C, SIGTERM and SIGHUP end a study within seconds, with status "interrupted". If the cluster that
  a command started is gone (its raylet or GCS has ended), one line gives the command that resumes; status "failed".
- Nothing is written through a link that leads out of the study's folder.
- fnbandit deletes only files that it wrote, by name: checkpoints of finished runs, in a folder `fnbandit-checkpoints`
  of their own.
- One process writes to a study's folder; a second one is refused and names the first. Where a shared file system does
  not pass locks on, the lock of another host expires after 60 seconds without a sign of life.
- Every batch of a running trace, the finished tables, the summary and the checkpoints have checksums, against
  accidents and not against forgery. A damaged checkpoint gives way to the one before; a damaged stream is read up to
  the damage, with a warning; other damage is an error of one line.
- A folder with runs of another config, or a table that changed since its run began, is refused; changed source of a
  user's own part is a warning.
- `report`, `ls` and `show` import nothing from a folder. `resume` writes nowhere else and imports no module that
  `study.json` names, unless the user passes `--trust` or agrees on the terminal.
- Passwords in URIs are neither printed nor stored: pass them as `MLFLOW_TRACKING_URI`, `RAY_ADDRESS` or the object
  store's own variables.
- `--out s3://BUCKET/NAME`, or any URI that `pyarrow.fs` opens: the study is written to `runs/NAME`, every run is
  copied when it ends, and checkpoints go there directly; `fnbandit resume URI` continues on any machine. Files that
  could not be copied stay in `runs/NAME`, are named at the end (exit code 1), and are copied by the next `resume`.

Not checked: tables on nodes other than the driver's, edits of `study.json` and `config.toml`, object stores that
several studies write to at once, and modules in the working directory of `python -m`.
"""
