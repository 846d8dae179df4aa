"""A trained agent in use: it scores contexts, chooses arms and learns, with numpy alone.

`Result.policy` and `fnbandit export` make one from a simulation; a file of it needs neither torch nor Ray:

    policy = Policy.load("policy.safetensors")
    arm = policy.act(contexts)                  # [arms, dim], or the features of a table's row, [d]
    policy.learn(contexts, arm, reward)

Scores are those of the simulated agent at the end of its run, to rounding: (1 - alpha) UCB^a + alpha UCB^b. `learn`
does what an agent does between two rounds: it adds the row to V-bar and B; networks stay as they are.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from fnbandit.numerics.coding import RowCoding

FORMAT = "fnbandit policy 1"
"""Value of `format` in the metadata of a file"""
WORKSPACE_NUMBERS = 4_000_000
"""Numbers of features that are computed at once"""


class NumpyNetwork:
    """A fully connected ReLU network on flat parameters, layer by layer [outputs, inputs], as the simulation's."""

    def __init__(self, shapes: list[tuple[int, int]], is_doubled: bool, output_scale: float) -> None:
        self._shapes, self._is_doubled, self._output_scale = shapes, is_doubled, output_scale

    def _layers(self, theta: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([outputs * inputs for outputs, inputs in self._shapes])
        return [part.reshape(s) for part, s in zip(np.split(theta, ends[:-1]), self._shapes, strict=True)]

    def _activations(self, layers: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
        """Return the inputs of every layer, with a one for the bias of networks that have biases."""
        if self._is_doubled:
            found = [np.concatenate([x, x], axis=1) / math.sqrt(2)]
        else:
            found = [_add_one(x)]
        for layer in layers[:-1]:
            hidden = np.maximum(found[-1] @ layer.T, 0.0)
            found.append(hidden if self._is_doubled else _add_one(hidden))
        return found

    def predict(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return f(x; theta) of contexts [count, dim] -> [count]."""
        layers = self._layers(theta)
        return self._output_scale * (self._activations(layers, x)[-1] @ layers[-1][0])

    def last_layer_inputs(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the inputs of the last layer, [count, dim] -> [count, m], with a one for its bias."""
        return self._activations(self._layers(theta), x)[-1]

    def tangent(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the unscaled output by theta, [count, dim] -> [count, p]."""
        layers = self._layers(theta)
        activations = self._activations(layers, x)
        delta, blocks = np.ones((len(x), 1)), []
        for index in reversed(range(len(layers))):
            blocks.append((delta[:, :, None] * activations[index][:, None]).reshape(len(x), -1))
            if index:
                below = activations[index] if self._is_doubled else activations[index][:, :-1]
                delta = (delta @ layers[index][:, : below.shape[1]]) * (below > 0)
        return np.concatenate(blocks[::-1], axis=1)


def _add_one(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1)


class Policy:
    """One agent's learned scores. `facts` holds the plain values, `tensors` the arrays, of the formula in the module.

    tensors: solution [p] and inverse [p, p] or [p] (a diagonal) of UCB^a; features_at [p], the parameters at which
    tangent features are taken; theta [p] and local [n, p, p] or [n, p] of UCB^b; alphas [n] of the next iterations,
    the last of which stays; shift and scale [d] of a table's features.
    """

    def __init__(self, facts: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        self.facts = facts
        self.tensors = {name: np.array(values, dtype=np.float64) for name, values in tensors.items()}
        network = facts.get("network")
        self._network = None if network is None else NumpyNetwork([(a, b) for a, b in network[0]], *network[1:])

    @property
    def arms(self) -> int:
        """K, the number of arms of the task."""
        return self.facts["arms"]

    @property
    def dim(self) -> int:
        """Length of a context."""
        return self.facts["dim"]

    @property
    def arm_names(self) -> list[str]:
        """Names of the arms; empty where the task has none."""
        return self.facts.get("arm_names", [])

    @property
    def row_coding(self) -> RowCoding | None:
        """How a row of a table becomes contexts; None for tasks without a table."""
        coding = self.facts.get("coding")
        if coding is None:
            return None
        return RowCoding(coding[0], self.arms, coding[1], self.tensors["shift"], self.tensors["scale"])

    def __repr__(self) -> str:
        facts = self.facts
        return (
            f"Policy: agent {facts['agent']} of {facts['algorithm']} on {facts['environment']} after "
            f"{facts['iterations']} iterations, {self.arms} arms"
        )

    def contexts(self, x: Any) -> np.ndarray:
        """Return x as contexts [.., arms, dim]: contexts unchanged, features of a table's rows [.., d] coded."""
        values = np.asarray(x, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("contexts: have NaN or infinite values; expected numbers")
        coding = self.row_coding
        if coding is not None and values.ndim and values.shape[-1] == len(coding.shift):
            rows = values.reshape(-1, values.shape[-1])
            return coding.contexts(rows).reshape(*values.shape[:-1], self.arms, self.dim)
        if values.ndim < 2 or values.shape[-2:] != (self.arms, self.dim):
            features = "" if coding is None else f", or features [.., {len(coding.shift)}]"
            raise ValueError(f"contexts: have shape {values.shape}; expected [.., {self.arms}, {self.dim}]{features}")
        return values

    def scores(self, x: Any) -> np.ndarray:
        """Return the scores of contexts or rows, [.., arms]."""
        contexts = self.contexts(x)
        flat = contexts.reshape(-1, *contexts.shape[-2:])
        step = max(1, WORKSPACE_NUMBERS // (flat.shape[1] * self._feature_count))
        parts = [self._score(flat[start : start + step]) for start in range(0, len(flat), step)]
        return np.concatenate(parts).reshape(contexts.shape[:-1]) if parts else np.zeros(contexts.shape[:-1])

    def act(self, x: Any) -> Any:
        """Return the arm with the best score: a number for contexts [arms, dim] or one row, else [..]."""
        arms = self.scores(x).argmax(axis=-1)
        return int(arms) if arms.ndim == 0 else arms

    def learn(self, x: Any, arm: int, reward: float) -> None:
        """Learn from the reward of an arm: x is what `act` was given, or the context of the arm, [dim]."""
        values = np.asarray(x, dtype=np.float64)
        if not 0 <= arm < self.arms:
            raise ValueError(f"arm={arm}: expected a number from 0 to {self.arms - 1}")
        if not math.isfinite(reward):
            raise ValueError(f"reward={reward}: expected a finite number")
        context = values if values.shape == (self.dim,) else self.contexts(values)[arm]
        row = self._features(context[None])[0]
        self.facts["learned"] = self.facts.get("learned", 0) + 1
        tensors = self.tensors
        reward = reward / self.facts.get("reward_unit", 1.0)
        if "solution" in tensors:
            inverse = tensors["inverse"] = add_row(tensors["inverse"], row)
            solution = tensors["solution"]
            # V'^-1 (B + r g) = V^-1 B + V'^-1 g (r - <g, V^-1 B>), with diagonals elementwise.
            if inverse.ndim == 1:
                change = inverse * row * (reward - row * solution)
            else:
                change = (inverse @ row) * (reward - row @ solution)
            if not self.facts.get("keeps_solution"):
                tensors["solution"] = solution + change
        if self.facts.get("local_learns"):
            tensors["local"] = np.stack([add_row(inverse, row) for inverse in tensors["local"]])

    @property
    def _feature_count(self) -> int:
        return self.dim if self._network is None else len(self.tensors["features_at"])

    def _features(self, x: np.ndarray) -> np.ndarray:
        """Return the features of contexts [count, dim] -> [count, p]."""
        if self._network is None:
            return x
        take = self._network.last_layer_inputs if self.facts.get("uses_last_layer") else self._network.tangent
        return take(self.tensors["features_at"], x)

    def _score(self, contexts: np.ndarray) -> np.ndarray:
        """Return the scores of contexts [n, arms, dim] -> [n, arms]."""
        tensors, facts, shape = self.tensors, self.facts, contexts.shape[:2]
        x = contexts.reshape(-1, contexts.shape[2])
        features = self._features(x)
        a = b = None
        if "solution" in tensors:
            mean = (features @ tensors["solution"]).reshape(shape)
            if facts.get("rescales"):
                low, high = mean.min(1, keepdims=True), mean.max(1, keepdims=True)
                mean = (mean - low) / np.where(high > low, high - low, 1) * facts["unit"]
            variance = quadratic_form(tensors["inverse"], features).clip(min=0).reshape(shape)
            a = mean + facts["global_scale"] * np.sqrt(variance)
        if "theta" in tensors:
            assert self._network is not None
            b = self._network.predict(tensors["theta"], x).reshape(shape)
            if "local" in tensors:
                norms = [np.sqrt(quadratic_form(one, features).clip(min=0)) for one in tensors["local"]]
                b = b + facts["local_scale"] * np.mean(norms, axis=0).reshape(shape)
        if a is None or b is None:
            only = b if a is None else a
            assert only is not None
            return only
        alphas = tensors["alphas"]
        alpha = alphas[min(facts.get("learned", 0), len(alphas) - 1)]
        return (1 - alpha) * a + alpha * b

    def save(self, path: str | Path) -> Path:
        """Write the policy to a file in the safetensors format."""
        from safetensors.numpy import save_file

        names = {name: np.ascontiguousarray(values) for name, values in self.tensors.items()}
        save_file(names, str(path), {"format": FORMAT, "facts": json.dumps(self.facts)})
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """Read a policy from a file that `save` wrote; raise a one-line ValueError on any other file."""
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise ValueError(f"policy={str(path)!r}: no such file; `fnbandit export RUN FILE` writes one")
        try:
            with safe_open(str(path), framework="numpy") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"policy={str(path)!r}: cannot be read ({str(error).splitlines()[0]})") from None
        if metadata.get("format") != FORMAT:
            raise ValueError(f"policy={str(path)!r}: is no policy of fnbandit; `fnbandit export RUN FILE` writes one")
        return cls(json.loads(metadata["facts"]), tensors)


def quadratic_form(inverse: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return x^T V^-1 x for x [count, p] and V^-1 [p, p] or its diagonal [p], [count]."""
    return ((x * inverse if inverse.ndim == 1 else x @ inverse) * x).sum(1)


def add_row(inverse: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return V^-1 after V <- V + g g^T, or its diagonal after that of V grew by g^2."""
    if inverse.ndim == 1:
        return inverse / (1 + inverse * row**2)
    solved = inverse @ row
    return inverse - np.outer(solved, solved / (1 + row @ solved))
