"""The loop of a simulation (`loop`): schedules, populations, simulated time, results.

A clock gives every agent a speed (iterations per simulated second), a link (latency, bytes per second up and down)
and spells of absence, all functions of (seed, agent, iteration). `--clock lognormal --speed-spread 1 --slow-share
0.1` draws them; `--clock trace --clock-table agents.csv` reads them from a table with the columns agent, speed,
latency, up, down and, optionally, availability. A round at a barrier lasts until the slowest participant's upload has
arrived and the download has been sent. The trace has the `time` at which an agent finished an iteration; a round has
its `time` and the seconds of computing, waiting, sending and absence. Figures against time need every agent's rows
(not `--trace mean`).

With `fn-ucb-async` and the linear `fedlinucb` (He et al. 2022) an agent communicates alone, when det(V + its new
rows) exceeds 1 + `async_gain` times det V, or by another trigger; `rounds.parquet` has a row per agent's round, with
its staleness: the number of other agents' rounds since its last one. `--staleness polynomial` reduces the weight of
stale uploads. Both keep full matrices. `fnbandit reproduce stragglers` compares them with rounds at a barrier: agents
that do not wait reach a regret of 0.05 per iteration on cosine after 20 simulated seconds instead of 126 (D = 5,
equal speeds), and after 16 instead of 3,361 with a spread of 2; on shuttle after 78 instead of 289, and 102 instead
of 5,890. Per iteration, rounds at a barrier have less regret.
"""
