"""Trackers: the interface (`base`), MLflow with its store and its page, JSON lines as the shortest example.

MLflow shows a sweep as a parent run with a child per run. The parent's row has regret, rounds and MB (10^6 bytes, both
ways) of the setting with the least regret, which the tag `best` names; its charts have "regret by N", one per D in
numeric order, and its description the table and the picture of regret against N. It has the figures, `table.csv` and
`report.html`, which is in the sweep's folder, too: curves to switch on and off and totals against N and D in one file
that needs no server. `fnbandit ui FOLDER` opens the table of runs on loopback, best first; another view has studies
(closing MLflow's assistant makes room for all columns). Params are the fields that have an effect.

A resumed run continues its own MLflow run (`mlflow.json` beside the records, which says what has been sent); what was
not sent is sent by the next `resume`. An extended sweep gets a new parent, which takes over the children; the earlier
one is deleted. `--experiment` names MLflow's experiment, `--tracking-uri` a server or a store. If the server is
unreachable there is a warning; the records are complete without it. MLflow's telemetry is off.

`--tracking jsonl` writes `tracking.jsonl` beside the records, `none` tracks nothing, and `package.module:Name` is a
user's own class that extends `workflows.tracking.base.Tracker`.
"""
