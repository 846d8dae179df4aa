"""Rules by which rounds train the shared network: what a rule asks of agents, and how its steps are decided."""

import pytest
import torch

from fnbandit import Config
from fnbandit.core import Triangle
from fnbandit.federation.network_training import Ask, ExactFederation, GaussNewton, TrainingTask


def make_task(parameters, has_full_matrices=True):
    theta = torch.ones(parameters)
    return TrainingTask(theta, theta, {}, steps=3, iteration=10, observations=20, factor=1.0, has_trained=True,
                        has_full_matrices=has_full_matrices)  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "full", "content"), [(241, True, "curvature"), (241, False, "gradient"), (3000, True, "gradient")]
)
def test_exact_federation_asks_for_curvature_where_messages_stay_small(parameters, full, content):
    rule = ExactFederation(Config(federation="exact"))
    assert next(rule.train(make_task(parameters, full))).content == content


def test_gauss_newton_solves_a_linear_least_squares_problem():
    # Targets y = X w: the loss is quadratic, so accepted steps approach the ridge solution that numpy-like algebra has.
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=draw, dtype=torch.float64)
    y = x @ torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    rule = GaussNewton(Config(federation="gauss-newton", training_decay=0.1, newton_steps=20))
    training = rule.train(make_task(3))
    ask = next(training)
    try:
        while True:
            assert isinstance(ask, Ask)
            errors = y - x @ ask.theta.double()
            curvature = x.T @ x
            triangle = Triangle(curvature[tuple(torch.triu_indices(3, 3))])
            ask = training.send({"squares": errors @ errors, "covariance": triangle, "moments": x.T @ errors})
    except StopIteration as end:
        found = end.value.theta.double()
    # Loss: (2 / 20) / 2 * squares + (0.1 / 20) / 2 * |theta|^2, so the ridge is 0.05.
    ridge = torch.linalg.solve(x.T @ x + 0.05 * torch.eye(3, dtype=torch.float64), x.T @ y)
    torch.testing.assert_close(found, ridge, atol=2e-3, rtol=0)
