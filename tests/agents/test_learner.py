"""The steps that agents share: how a batch is divided into passes of its gradient."""

import jax
import pytest

from jaxrl.agents.learner import policy_learner
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config
from jaxrl.kernels import library
from jaxrl.ops.gradients import Passes, _default_micro_batch
from jaxrl.types import EnvSpec

SPEC = EnvSpec(8, 3, ("NOOP", "LEFT", "RIGHT"), "catch")


@pytest.mark.parametrize(
    ("dtype", "lanes", "rows"), [("float32", 8, 128), ("bfloat16", 8, 128), ("float32", None, 48)]
)
def test_passes_are_longer_where_the_kernels_convolve(monkeypatch, dtype, lanes, rows):
    monkeypatch.setattr(library, "lanes", lambda: lanes)
    plan = resolve(Config(game="catch").replaced(network={"dtype": dtype}))
    assert policy_learner(plan, SPEC).passes == Passes(0, cpu_rows=rows, rows_per_item=1)


@pytest.mark.parametrize(
    ("items", "passes", "expected"),
    [
        (256, Passes(0, 128), 128),
        (256, Passes(0, 48), 32),  # the largest divisor
        (100, Passes(0, 128), 100),
        (84, Passes(0, 48), 42),
        (6, Passes(0, 128, rows_per_item=40), 3),  # 3 sequences of 40 rows
        (6, Passes(0, 128, rows_per_item=400), 1),
    ],
)
def test_a_pass_is_the_largest_part_within_the_rows(items, passes, expected):
    assert _default_micro_batch(items, passes) == expected


def test_an_accelerator_takes_the_whole_batch(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert _default_micro_batch(256, Passes(0, 128)) == 256
