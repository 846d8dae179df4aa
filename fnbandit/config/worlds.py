"""Names of the parts of tasks: environments, differences between agents, drift; and of what agents do about them."""

from __future__ import annotations

from fnbandit.config.part import Part

FUNCTION = ("arms", "dim", "noise")
ENVIRONMENTS = {
    "cosine": Part("fnbandit.environments.functions:cosine", "cosine", "h(x) = cos(3 <a, x>) on the unit sphere",
                   FUNCTION),
    "square": Part("fnbandit.environments.functions:square", "square", "h(x) = 10 <a, x>^2 on the unit sphere",
                   FUNCTION),
    "shuttle": Part("fnbandit.environments.tables:load_shipped", "shuttle",
                    "UCI Statlog (Shuttle): 58,000 rows, 9 features, 7 classes", ("standardization", "coding")),
    "magic": Part("fnbandit.environments.tables:load_shipped", "magic",
                  "UCI MAGIC Gamma Telescope: 19,020 rows, 10 features, 2 classes", ("standardization", "coding")),
    "wheel": Part("fnbandit.environments.wheel:Wheel", "wheel",
                  "the wheel bandit (Riquelme et al. 2018): 5 arms, a rare region where one of them has a high reward",
                  ("wheel_delta", "noise")),
    "routing": Part("fnbandit.environments.reward_tables:load_routing", "routing",
                    "which of 9 language models should answer: 5,608 questions of 14 domains with every model's score",
                    ("standardization", "coding", "price")),
}  # fmt: skip
OWN_TABLE = Part("fnbandit.environments.reward_tables:load_user_table", "table",
                 "a classification table, or a reward table with a column reward:NAME per arm (.parquet or .csv)",
                 ("label", "standardization", "coding", "price", "domain_column"))  # fmt: skip

HETEROGENEITIES = {
    "none": Part("fnbandit.environments.worlds:SameTask", "", "all agents have the same task (the paper)"),
    "clusters": Part("fnbandit.environments.worlds:ClusteredTasks", "clusters of agents",
                     "agent i has the task of group i mod groups", ("groups",)),
    "personal": Part("fnbandit.environments.worlds:PersonalTasks", "personal rewards",
                     "an agent's rewards are 1 - personal_share of the common ones and personal_share of its own",
                     ("personal_share",)),
    "domain": Part("fnbandit.environments.worlds:DomainTasks", "a domain each",
                   "agent i receives rows of domain i mod their number, by a table's column of domains"),
}  # fmt: skip

DRIFTS = {
    "none": Part("fnbandit.environments.worlds:NoDrift", "", "the task never changes (the paper)"),
    "rotate": Part("fnbandit.environments.worlds:RotatingDrift", "rotating task",
                   "the task turns by drift_rate radians per iteration", ("drift_rate",)),
    "switch": Part("fnbandit.environments.worlds:SwitchingDrift", "switching task",
                   "the task is another one after T/2"),
}  # fmt: skip

PERSONALIZATIONS = {
    "none": Part("fnbandit.algorithms.experts:Shared", "", "all agents have the same estimates (the paper)"),
    "head": Part("fnbandit.algorithms.experts:Heads", "personal heads",
                 "ridge regressions of the agent's own towards the model of all agents"),
    "cluster": Part("fnbandit.algorithms.experts:ClusterModel", "models of clusters",
                    "the model of the agents with the same rewards"),
    "auto": Part("fnbandit.algorithms.experts:EveryExpert", "all experts",
                 "the models of all agents and of the cluster, heads, and a network of the agent's own"),
}  # fmt: skip

FORGETTINGS = {
    "none": Part("fnbandit.federation.forgetting:NoForgetting", "", "all observations count alike (the paper)"),
    "discount": Part("fnbandit.federation.forgetting:Discounting", "discounted",
                     "observations of age a have the weight discount^a", ("discount",)),
    "window": Part("fnbandit.federation.forgetting:SlidingWindow", "sliding window",
                   "the newest observations of every agent count", ("window",)),
}  # fmt: skip
