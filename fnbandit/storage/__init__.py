"""The files of runs and studies: records, checkpoints, totals. Every column of the records is listed here.

trace.parquet, a row per iteration and agent that does not lie (`--trace mean`: per iteration, with means over them):
    iteration, agent       from 1, from 0
    arm, reward, regret    number of the pulled arm, observed reward, h(best arm) - h(pulled arm)
    weight                 alpha, the weight of UCB^b
    time                   simulated seconds at the iteration's end; null without a clock

rounds.parquet, a row per round, or per exchange of one agent where agents do not wait for each other:
    iteration, epoch_length           iteration after which it took place, iterations since the one before
    triggered                         agents that asked for it
    measure, threshold                the largest value that the trigger measured, and D or what replaces it
    messages_, numbers_, bytes_ up, down    what was sent to the server and back, as the paper counts it
    weight                            alpha in the round's iteration
    loss, steps, diverged             mean squared error and steps of the training, share of agents that diverged
    alpha, broadcast_alpha            mean of the agents' alpha_i, the server's alpha
    seconds                           wall time since the round before
    agent, staleness                  of one agent's exchange: the agent, exchanges of others since its last one
    participants, exchanges           agents that uploaded, exchanges of the round
    dropped, dropped_share            agents whose uploads failed a check of the server, their share; null where none
                                      checks
    time, computing, waiting, sending, away    simulated seconds of the round, and their uses; null without a clock

summary.json: status, config, iterations, the final mean regret per agent and its standard error over agents (with an
    attack: over honest_agents, the agents that do not lie), rounds,
    sums of the costs, seconds of wall time, with a clock simulated_seconds and their uses; versions, machine, layout.
table.csv of a study, a row per curve: the fields that differ, seeds, regret, regret_error with its sample in
    error_over, means of rounds, bytes and seconds.
"""
