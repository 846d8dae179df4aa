"""Agents with networks that rounds train (Alg. 1, line 14): each on its own history, or one by sums over agents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fnbandit.algorithms.federated import FederatedGroup, mask_absent
from fnbandit.core import Download, Upload
from fnbandit.covariance import matrices
from fnbandit.networks.training import MATURE, train, train_debiased
from fnbandit.numerics.device import put_values
from fnbandit.numerics.products import multiply


class FederatedNetworkGroup(FederatedGroup):
    """n agents that keep the inputs of the contexts that they chose, and train networks on them in rounds."""

    def start_networks(self) -> None:
        """Allocate theta_i and the history of inputs. Called once, by algorithms that have networks."""
        replica, n = self.replica, len(self.agents)
        assert replica.network is not None
        self._network = replica.network
        self._theta_0 = replica.initial
        self.theta = self._theta_0.repeat(n, 1)
        """theta_i [n, p]"""
        self._inputs = self.theta.new_zeros(n, self._network.padded_dim, self.config.horizon)
        self._caution = self.theta.new_ones(n)
        """Factor of the gradients: 1, halved after every divergence"""
        self._has_trained = False
        """True where the participants of the group have trained for the present round"""

    @property
    def has_networks(self) -> bool:
        """True where the agents have networks."""
        return self.replica.federation is not None

    def list_state(self) -> dict[str, int | None]:
        own = {"theta": None, "_inputs": 2, "_caution": None} if self.has_networks else {}
        return super().list_state() | own

    def keep_inputs(self, iteration: int, contexts: Tensor, arms: Tensor) -> None:
        """Add the inputs of the pulled arms to the history."""
        context = self.select_pulled(contexts, arms).to(self.network_dtype)
        inputs = self._network.inputs(context[:, None])[:, :, 0]
        self._inputs[:, : inputs.shape[1], iteration - 1] = inputs

    # Each agent on its own history

    def train(self) -> None:
        """Train theta_i [n, p] (line 14), where training is due and the agents train their own networks."""
        super().train()
        self._has_trained = False
        if not self.has_networks or self.replica.trains_by_sums:
            return
        self._steps = self.replica.steps_due(self.iteration)
        if self._steps:
            self._train_networks(self.config.training_start, self.replica.last_trained > 0)

    def _train_networks(self, start_from: str, was_trained: bool) -> None:
        """Train theta_i from "initial", "own" or "aggregate" parameters; `was_trained` is True after a training."""
        t = self.iteration
        assert self.replica.theta is not None
        starts = {"initial": self._theta_0, "own": self.theta, "aggregate": self.replica.theta}
        present = self.present
        who: Any = slice(None)
        self._has_trained = True
        if present is not None:
            chosen = np.flatnonzero(self.replica.participants(t)[self.agents.start : self.agents.stop])
            who = put_values(chosen, self.device)
            if not len(chosen):
                self._loss = self._diverged = self.theta.new_zeros(len(present))
                return
        start = starts[start_from].expand_as(self.theta)[who]
        newest = slice(t - self.replica.forgetting.count(t), t)
        x, y = self._inputs[who, :, newest], self.rewards[who, newest].to(self.network_dtype)
        unit = self.theta.new_ones(())
        shared_unit = self.replica.unit.to(unit)
        if self.config.reward_unit == "rms":
            unit = root_mean_square(y)
            # theta_0 predicts rewards / unit; trained parameters predict the rewards in the unit of the replica.
            if was_trained and start_from != "initial":
                start = self._network.rescale(start, shared_unit / unit)
            y = y / unit
        young = t > self.replica.last_round + 1 and self.replica.rounds < MATURE
        work = train_debiased if young else train
        caution = self._caution[who]
        trained = work(self.config, self._network, start, self._theta_0, x, y, self._steps, caution)
        loss, diverged = trained.loss * unit.flatten().square(), trained.diverged
        theta = trained.theta if unit.ndim == 0 else self._network.rescale(trained.theta, unit / shared_unit)
        caution = caution * (1 - diverged / 2)
        if present is None:
            self.theta, self._caution, self._loss, self._diverged = theta, caution, loss, diverged
            return
        self.theta, self._caution = self.theta.clone(), self._caution.clone()
        self.theta[who], self._caution[who] = theta, caution
        self._loss, self._diverged = loss.new_zeros(len(present)), diverged.new_zeros(len(present))
        self._loss[who], self._diverged[who] = loss, diverged

    def add_first(self, upload: Upload) -> Upload:
        """Return the first upload of a round with theta_i and the sum of squared rewards, where it has these."""
        # A network that has not changed would be released again for nothing.
        if not self.replica.trains_by_sums and (self._has_trained or not self.chain.privacy.is_private):
            upload = replace(upload, theta=self.theta, trained=self._has_trained)
        if not self.replica.sends_squares(self.iteration):
            return upload
        count = self.replica.forgetting.count(self.iteration)
        squares = self.rewards[:, self.iteration - count : self.iteration].square().sum(1, keepdim=True)
        return replace(upload, squares=squares if self.present is None else mask_absent(squares, self.present))

    def report(self) -> dict[str, Tensor]:
        """Return the quantities of the agents' own training for the record of the round."""
        if not self._has_trained:
            return {}
        steps = torch.full_like(self._loss, self._steps)
        return {"loss": self._loss, "steps": steps, "diverged": self._diverged}

    # Exchanges after the first of a round

    def exchange(self, download: Download) -> Upload:
        """Answer with what the download asks for, at the theta that it brought."""
        t, n = self.iteration, len(self.agents)
        upload = Upload(self.agents, t, self.replica.last_round, self.rewards.new_full((n,), torch.nan),
                        content=download.asks, exchange=download.exchange + 1)  # fmt: skip
        if download.asks == "network":
            return self.send(self.add_network(upload))
        return self.send(self.chain.send_statistics(self._add_sums(upload)))

    def add_network(self, upload: Upload) -> Upload:
        """Return the upload with theta_i, trained again from the average of the exchange before (`averagings`)."""
        self._train_networks("aggregate", was_trained=True)
        return replace(upload, theta=self.theta, trained=True, report=self.report())

    def _add_sums(self, upload: Upload) -> Upload:
        """Return the upload with each agent's sums over its observations of the sample."""
        replica, t, n = self.replica, self.iteration, len(self.agents)
        assert replica.theta is not None and replica.training_unit is not None
        index, mask = replica.sample(t).select(self.agents, self.device)
        count = replica.forgetting.count(t)
        weights = replica.forgetting.weights(count, self.like)
        if weights is not None:
            weights = weights.expand(n, -1) if index is None else weights[index - (t - count)]
            mask = weights if mask is None else weights * mask
        x, y = self._inputs[:, :, :t], self.rewards[:, :t] / replica.training_unit
        if index is not None:
            x, y = x.gather(2, index[:, None].expand(-1, x.shape[1], -1)), y.gather(1, index)
        if upload.content == "statistics":
            assert replica.features is not None
            inputs = x[:, : self._network.inputs_dim].to(self.dtype)
            rows, center = replica.features.at(replica.theta, inputs), replica.features.center_of(replica.theta)
            errors = y - multiply(center.expand(n, 1, -1), rows.mT)[:, 0]
            rows, errors = self.chain.clip_rows(rows, errors)
            if mask is not None:
                root = mask if weights is None else mask.sqrt()
                rows, errors = rows * root[:, :, None], errors * root
            moments, squares = multiply(errors[:, None], rows)[:, 0], errors.square().sum(1, keepdim=True)
            update = matrices(self.config).as_update(rows)
            return replace(upload, covariance=update, moments=moments, squares=squares)
        y = y.to(self.network_dtype)
        moments, squares = self._network.sum_gradients(replica.theta, x, y, mask)
        upload = replace(upload, moments=moments, squares=squares.to(self.dtype))
        if upload.content == "gradient":
            return upload
        theta, inputs = replica.theta.to(self.dtype), x[:, : self._network.inputs_dim].to(self.dtype)
        rows = self._network.tangent_features(theta, inputs) * self._network.output_scale
        if mask is not None:
            rows = rows * (mask if weights is None else mask.sqrt())[:, :, None]
        return replace(upload, covariance=rows)


def root_mean_square(rewards: Tensor) -> Tensor:
    """Return the root mean square of every agent's rewards [n, t] -> [n, 1]; 1 where all of them are 0."""
    mean = rewards.square().mean(1, keepdim=True)
    return mean.where(mean > 0, 1).sqrt()
