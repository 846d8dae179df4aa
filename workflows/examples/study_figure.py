"""A study, its tables, and a figure for a paper."""

# %% Sweep over N. The same call again resumes the study; with more seeds or values it extends it.
import fnbandit
from fnbandit import Config

base = Config.preset("tuned", trigger="logdet", threshold=2.0, horizon=40, width=8)
study = fnbandit.Study(base, sweep={"agents": [1, 2, 4]}, seeds=2)
record = study.run("runs/study-figure", engine="local", tracking="none")
print(record)

# %% Read Arrow tables, with a column for every field that differs. `.to_pandas()` and polars convert them.
finals = record.finals()
mean = finals.group_by("agents").aggregate([("regret", "mean"), ("bytes_up", "mean")])
print(mean.sort_by("agents").to_pandas())
print(record.frame().to_pandas().tail())

# %% Draw a figure that is one column wide, with embedded fonts.
figure = record.plot("regret against N")
figure.axes[0].set_title("")
figure.savefig("regret.pdf")
