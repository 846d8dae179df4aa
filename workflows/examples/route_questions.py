"""Train agents to choose a language model for each question, take a policy away, and route questions with it."""

# %% Fourteen agents, each with the questions of one domain, share statistics and networks in ten rounds.
import numpy as np

import fnbandit
from fnbandit import Policy
from fnbandit.environments.table_files import parse_table
from fnbandit.environments.tables import read_shipped

routing = fnbandit.Config(environment="routing", horizon=60, width=8, trigger="period", period=6)
trained = fnbandit.simulate(routing)
print(trained)

# %% The policy of the agent of one domain, in a file that needs neither torch nor Ray.
table = parse_table(read_shipped("routing.parquet"), "routing.parquet").to_pydict()
agent = sorted(set(table["domain"])).index("math")
trained.policy(agent).save("policy.safetensors")
policy = Policy.load("policy.safetensors")
print(policy)

# %% Route the questions of the domain: features in, a model out; learn from each answer's score.
questions = [row for row, domain in enumerate(table["domain"]) if domain == "math"]
scores = []
for row in questions:
    features = np.array([table[f"x{number}"][row] for number in range(32)])
    arm = policy.act(features)
    scores.append(table[f"reward:{policy.arm_names[arm]}"][row])
    policy.learn(features, arm, scores[-1])
at_random = np.mean([table[f"reward:{name}"][row] for name in policy.arm_names for row in questions])
print(f"mean score of {len(scores)} questions: {np.mean(scores):.3f} routed, {at_random:.3f} with a model at random")
