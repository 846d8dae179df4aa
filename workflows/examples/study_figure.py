"""A study, its tables, and a figure for a paper."""

# %% A sweep over N. The same call again goes on where it stopped; more seeds or values are added.
import fnbandit
from workflows.command_line import main

fields = "--agents 1,2,4 --trigger logdet --threshold 2 --seeds 2 --horizon 40 --width 8"
how = "--engine local --no-tracking --quiet --out runs/study-figure"
main(["sweep", *fields.split(), *how.split()])
study = fnbandit.load("runs/study-figure")
print(study)

# %% Tables: Arrow, with every field that differs as a column. `.to_pandas()` and polars take them.
finals = study.finals()
mean = finals.group_by("agents").aggregate([("regret", "mean"), ("bytes_up", "mean")])
print(mean.sort_by("agents").to_pandas())
print(study.frame().to_pandas().tail())

# %% A figure that is one column wide, with fonts embedded.
figure = study.plot("regret against N")
figure.axes[0].set_title("")
figure.savefig("regret.pdf")
