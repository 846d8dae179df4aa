"""Trackers: the interface (`base`), MLflow with its store and its page, JSON lines as the shortest example.

MLflow shows a sweep as a parent run with a child per run. The parent has regret, rounds and bytes against N as
metrics, the figures, `table.csv` and `report.html`, which is in the sweep's folder, too: curves to switch on and off
and totals against N and D in one file that needs no server. `fnbandit ui FOLDER` opens the table of runs on loopback,
with regret, rounds, bytes, N, D and seed, best first; another view has studies. A resumed run continues its own
MLflow run (`mlflow.json` beside the records). `--experiment` names MLflow's experiment, `--tracking-uri` a server or
a store. If the server is unreachable there is a warning; the records are complete without it.

`--tracking jsonl` writes `tracking.jsonl` beside the records, `none` tracks nothing, and `package.module:Name` is a
user's own class that extends `workflows.tracking.base.Tracker`.
"""
