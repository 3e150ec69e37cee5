"""One update of every agent by hand: what acted, what learns and the target network all differ.

The networks are linear in one number s, which the newest frame shows, and the optimizer is plain
gradient descent. So every number of an update can be worked out on paper.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxrl.agents import make_agent
from jaxrl.agents.a2c import agent as a2c
from jaxrl.agents.a2c.settings import A2CConfig
from jaxrl.agents.c51.settings import C51Config
from jaxrl.agents.dqn.settings import DQNConfig
from jaxrl.agents.nstep_q.settings import NStepQConfig
from jaxrl.agents.ppo import agent as ppo
from jaxrl.agents.ppo.settings import PPOConfig
from jaxrl.agents.pqn import agent as pqn
from jaxrl.agents.pqn.settings import PQNConfig
from jaxrl.agents.vtrace import agent as vtrace
from jaxrl.agents.vtrace.settings import VTraceConfig
from jaxrl.config.network import NetworkConfig
from jaxrl.config.plan import resolve
from jaxrl.config.schema import Config, OptimizerConfig
from jaxrl.networks import heads
from jaxrl.networks.heads import PolicyValue
from jaxrl.networks.running_statistics import RunningStatistics
from jaxrl.ops import optimizers
from jaxrl.types import AXIS, EnvSpec, Trajectory

FRAME = (4, 4)
SPEC = EnvSpec(1, 2, ("NOOP", "FIRE"), "catch", FRAME)
PLAIN = NetworkConfig()
RATE = 0.1
LN3 = np.log(3)


def number(x):
    """s of the stacks f32[B, 4, 4, 4] that `normalize` gives: f32[B]."""
    return 255 * x[:, 0, 0, -1]


class LinearPolicyValue:
    """Logits p · s and value v · s."""

    def __init__(self, num_actions, config, planes):
        self.num_actions, self.config = num_actions, config

    def init(self, key, x):
        return {"params": {"p": jnp.zeros(self.num_actions), "v": jnp.zeros(())}}

    def apply(self, variables, x):
        params, s = variables["params"], number(x)
        return PolicyValue(s[:, None] * params["p"][None], s * params["v"])


class LinearActionValue:
    """q(s, a) = w[a] · s; with atoms the logits w[a, i] · s."""

    def __init__(self, num_actions, num_atoms, config, planes):
        self.shape = (num_actions,) if num_atoms == 1 else (num_actions, num_atoms)
        self.config = config

    def init(self, key, x):
        return {"params": {"w": jnp.zeros(self.shape)}}

    def apply(self, variables, x, noise=None):
        w = variables["params"]["w"][None]
        return number(x).reshape(-1, *[1] * (w.ndim - 1)) * w


@pytest.fixture(autouse=True)
def on_paper(monkeypatch):
    monkeypatch.setattr(heads, "PolicyValueNetwork", LinearPolicyValue)
    monkeypatch.setattr(heads, "ActionValueNetwork", LinearActionValue)
    monkeypatch.setattr(optimizers, "make_optimizer", lambda config: optax.identity())


def make(algorithm, settings, network=PLAIN, **optimizer):
    """An agent of one environment, and its first state."""
    optimizer = OptimizerConfig(**({"learning_rate": RATE} | optimizer))
    config = Config(
        algorithm, "catch", num_envs=1, network=network, optimizer=optimizer, agent=settings
    )
    # A window shorter than a rollout is refused, but fits on paper.
    plan = resolve(config.replaced(agent={"window": 5}) if algorithm == "vtrace" else config)
    agent = make_agent(dataclasses.replace(plan, config=config), SPEC)
    return agent, agent.init(jax.random.key(0))


def with_params(state, params, updates=0, **changes):
    """The state with other parameters; `changes` are fields of its train_state."""
    params = {name: jnp.asarray(value, jnp.float32) for name, value in params.items()}
    actor = state.actor._replace(params=params, updates=jnp.int32(updates))
    train_state = state.train_state._replace(**changes) if changes else state.train_state
    return state._replace(actor=actor, train_state=train_state)


def stacks(s):
    """Stacks u8[len(s), 1, 4, 4, 4] of one environment, whose newest frames show `s`."""
    newest = jnp.asarray(s, jnp.uint8)[:, None, None, None]
    return jnp.zeros((len(s), 1, *FRAME, 4), jnp.uint8).at[..., -1].set(newest)


def played(s, action, reward, extras=()):
    """T steps of one environment that passes through s_0 .. s_T."""
    column = lambda x, kind: jnp.asarray(x, kind)[:, None]  # noqa: E731
    return Trajectory(
        observation=stacks(s),
        action=column(action, jnp.int32),
        reward=column(reward, jnp.float32),
        discount=jnp.ones((len(action), 1)),
        valid=jnp.ones((len(action), 1), bool),
        extras=jax.tree.map(lambda x: column(x, jnp.float32), extras),
    )


def update(agent, state, trajectory):
    """The state after one update, and its metrics as numbers."""
    mapped = jax.jit(jax.vmap(agent.update, in_axes=(0, 0, None), axis_name=AXIS))
    given = jax.tree.map(lambda x: x[None], (state, trajectory))
    after, metrics = jax.tree.map(lambda x: x[0], mapped(*given, jax.random.key(0)))
    mean = lambda x: float(x.total / x.number) if isinstance(x, tuple) else float(x)  # noqa: E731
    return after, {name: mean(value) for name, value in metrics.items()}


def check(metrics, **expected):
    """Metrics by name, with `_` for `/`."""
    for name, value in expected.items():
        assert metrics[name.replace("_", "/", 1)] == pytest.approx(value, rel=1e-4, abs=1e-6), name


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


# --- policies ------------------------------------------------------------------------------------

# What learns: at s = 1 the policy (1/4, 3/4), at s = 2 (1/10, 9/10); values 2, 4, 6 at 1, 2, 3.
ONLINE = {"p": [0.0, LN3], "v": 2.0}
# What acted, some updates ago: the uniform policy, and values 10 and 20.
OLD_VALUE, OLD_LOG_PROB = np.array([10.0, 20.0]), np.log([0.5, 0.5])
S, ACTION, REWARD = [1, 2, 3], [1, 0], [1.0, 2.0]
POLICIES = {
    "a2c": A2CConfig(),
    "ppo": PPOConfig(rollout_length=2, num_minibatches=1),
    "vtrace": VTraceConfig(rollout_length=5, window=2, num_minibatches=1),
}


@pytest.mark.usefixtures("strict_shapes")
def test_acting_says_the_value_and_the_probability_of_its_action():
    keys = jax.random.split(jax.random.key(0), 8)
    observation = jnp.concatenate([stacks([2])[0]] * 8)
    for algorithm, settings in POLICIES.items():
        agent, state = make(algorithm, settings)
        action, extras, *_ = agent.act(with_params(state, ONLINE).actor, observation, keys)
        assert set(action.tolist()) == {0, 1}
        if algorithm != "vtrace":
            close(extras.value, [4.0] * 8)
        if algorithm != "a2c":
            close(extras.log_prob, np.log([0.1, 0.9])[action])


def check_predictions(agents, params, observation, probabilities, value):
    """Checks predictions of two observations, without distributions of the return."""
    for algorithm, settings in agents.items():
        agent, state = make(algorithm, settings)
        prediction = agent.predict(with_params(state, params).actor, observation)
        close(prediction.probabilities, probabilities)
        close(prediction.value, value)
        assert prediction.distributions.shape == (2, 2, 0)
        assert prediction.support.shape == (0,)


@pytest.mark.usefixtures("strict_shapes")
def test_policies_predict_their_probabilities_and_values():
    probabilities = [[0.25, 0.75], [0.1, 0.9]]
    check_predictions(POLICIES, ONLINE, stacks([1, 2])[:, 0], probabilities, [2.0, 4.0])


@pytest.mark.usefixtures("strict_shapes")
def test_a2c_keeps_the_values_of_what_acted():
    agent, state = make("a2c", A2CConfig(2, gamma=0.5, entropy_coef=0.0, value_coef=0.25))
    data = played(S, ACTION, REWARD, a2c.Extras(OLD_VALUE))
    after, metrics = update(agent, with_params(state, ONLINE), data)
    # R₁ = 2 + 0.5 · v(3) = 2 + 0.5 · 6 = 5,  R₀ = 1 + 0.5 · 5 = 3.5;  advantages by the old values:
    # 3.5 - 10 = -6.5,  5 - 20 = -15.
    policy_loss = -(-6.5 * np.log(0.75) - 15 * np.log(0.1)) / 2
    # The errors of the values are those of what learns: 3.5 - 2, 5 - 4.
    check(metrics, value_target=4.25, loss_policy=policy_loss, loss_value=(1.5**2 + 1) / 2)
    # v: 0.25 · -2 · (1.5 · 1 + 1 · 2) / 2 = -0.875.  p₁: ∂log π(1|1) = 1/4, ∂log π(0|2) = -0.9 · 2,
    # so -(-6.5 · 0.25 - 15 · -1.8) / 2 = -12.6875, and the opposite for p₀.
    close(after.actor.params["v"], 2 + RATE * 0.875)
    close(after.actor.params["p"], [-RATE * 12.6875, LN3 + RATE * 12.6875])
    assert int(after.actor.updates) == 1


@pytest.mark.usefixtures("strict_shapes")
def test_ppo_compares_what_learns_with_what_acted():
    settings = PPOConfig(
        rollout_length=2, gamma=0.5, gae_lambda=0.5, epochs=1, num_minibatches=1, clip=0.1,
        clip_value=True, entropy_coef=0.0, value_coef=0.5, normalize_advantages=False,
    )  # fmt: skip
    agent, state = make("ppo", settings)
    data = played(S, ACTION, REWARD, ppo.Extras(OLD_VALUE, OLD_LOG_PROB))
    after, metrics = update(agent, with_params(state, ONLINE), data)
    # δ₁ = 2 + 0.5 · 6 - 20 = -15, by what learns of s = 3;  δ₀ = 1 + 0.5 · 20 - 10 = 1.
    # A₁ = -15,  A₀ = 1 + 0.5 · 0.5 · -15 = -2.75;  R = 10 - 2.75 = 7.25 and 20 - 15 = 5.
    # Ratios 0.75 / 0.5 = 1.5 and 0.1 / 0.5 = 0.2, clipped to 1.1 and 0.9. Of negative advantages
    # the larger ratio is the smaller gain: 1.5 · -2.75 = -4.125, 0.9 · -15 = -13.5.
    # Values 2 and 4 may go from 10 and 20 to 9.9 and 19.9: the larger errors are 7.25 - 2 = 5.25
    # and 5 - 19.9 = -14.9.
    check(
        metrics, value_target=(7.25 + 5) / 2, loss_policy=(4.125 + 13.5) / 2,
        loss_value=(5.25**2 + 14.9**2) / 4, policy_clip_fraction=1.0,
        policy_approx_kl=(0.5 - np.log(1.5) - 0.8 - np.log(0.2)) / 2,
    )  # fmt: skip
    # Row 1 is clipped in both. p₁: -(1.5 · -2.75 · 0.25) / 2 = 0.515625;  v: 0.5 · -5.25 / 2.
    close(after.actor.params["p"], [RATE * 0.515625, LN3 - RATE * 0.515625])
    close(after.actor.params["v"], 2 + RATE * 1.3125)


def test_ppo_bootstraps_in_units_of_the_return():
    settings = PPOConfig(
        rollout_length=2, gamma=0.5, gae_lambda=1.0, epochs=1, num_minibatches=1,
        normalize_values=True,
    )  # fmt: skip
    agent, state = make("ppo", settings)
    state = with_params(state, ONLINE)
    seen = RunningStatistics(jnp.float32(9), jnp.float32(1), jnp.float32(4))
    statistics = state.actor.statistics._replace(value=seen)
    state = state._replace(actor=state.actor._replace(statistics=statistics))
    data = played(S, ACTION, REWARD, ppo.Extras(OLD_VALUE, OLD_LOG_PROB))
    after, metrics = update(agent, state, data)
    # v(3) = 6 standard deviations: 1 + 2 · 6 = 13.  R₁ = 2 + 0.5 · 13 = 8.5,  R₀ = 1 + 4.25 = 5.25.
    check(metrics, value_target=(8.5 + 5.25) / 2)
    # The two returns join the nine: (9 · 1 + 8.5 + 5.25) / 11.
    close(after.actor.statistics.value.mean, 22.75 / 11)


def test_a_second_epoch_of_ppo_goes_on_from_the_first():
    settings = PPOConfig(
        rollout_length=1, gamma=0.5, epochs=2, num_minibatches=1, clip=0.9, entropy_coef=0.0,
        value_coef=0.5, normalize_advantages=False,
    )  # fmt: skip
    agent, state = make("ppo", settings)
    state = with_params(state, {"p": [0.0, 0.0], "v": 0.0})
    # R = A = 4 by the old value 0. First epoch, ratio 1: p₁ += 0.1 · 4 · ½, v += 0.1 · 0.5 · 4.
    data = played([1, 1], [1], [4.0], ppo.Extras(np.zeros(1), OLD_LOG_PROB[:1]))
    after, metrics = update(agent, state, data)
    # Second: p = (-0.2, 0.2), π(1) = 1 / (1 + exp(-0.4)), ratio 2 π; it gains ratio · 4 · (1 - π).
    policy = 1 / (1 + np.exp(-0.4))
    step = RATE * 2 * policy * 4 * (1 - policy)
    close(after.actor.params["p"], [-0.2 - step, 0.2 + step])
    close(after.actor.params["v"], 0.2 + RATE * 0.5 * (4 - 0.2))
    check(metrics, loss_policy=-(4 + 2 * policy * 4) / 2, loss_value=(4**2 + 3.8**2) / 4)


def test_ppo_lowers_its_entropy_bonus():
    settings = PPOConfig(
        rollout_length=1, epochs=1, num_minibatches=1, entropy_coef=0.4, entropy_schedule="linear",
        normalize_advantages=False,
    )  # fmt: skip
    agent, state = make("ppo", settings)
    for part, bonus in ((0, 0.4), (0.5, 0.2), (1, 0.0)):
        acting = with_params(state, {"p": [0, LN3], "v": 0}, round(part * Config().total_steps))
        data = played([1, 1], [1], [0.0], ppo.Extras(np.zeros(1), np.log([0.75])))
        after, metrics = update(agent, acting, data)
        # Nothing is gained, so the bonus alone pulls at π = (1/4, 3/4): its gradient is
        # ∂H/∂p₁ = -π₁ (ln π₁ + H) = -π₀ π₁ ln(π₁ / π₀).
        check(metrics, policy_entropy_coef=bonus)
        close(after.actor.params["p"][1], LN3 - RATE * bonus * 3 / 16 * LN3)


NORMALIZING = {
    "a2c": (A2CConfig(2, gamma=0.5), a2c.Extras(OLD_VALUE)),
    "ppo": (
        PPOConfig(2, 0.5, epochs=1, num_minibatches=1),
        ppo.Extras(OLD_VALUE, OLD_LOG_PROB),
    ),
}


@pytest.mark.parametrize("algorithm", NORMALIZING)
def test_a_loss_sees_the_statistics_of_acting(algorithm):
    """Those of an update's frames join them after it."""
    settings, extras = NORMALIZING[algorithm]
    agent, state = make(algorithm, settings, NetworkConfig(normalize_observations=True))
    state = with_params(state, ONLINE)
    after, metrics = update(agent, state, played(S, ACTION, REWARD, extras))
    # Of nothing yet: mean 0, variance 1, so that the values stay 2, 4 and 6.
    if algorithm == "a2c":
        check(metrics, value_target=4.25, loss_value=(1.5**2 + 1) / 2)
    statistics = after.actor.statistics
    statistics = statistics if algorithm == "a2c" else statistics.observation
    # The frames that were acted on are of s = 1 and 2; the last one joins with the next update.
    assert float(statistics.samples) == 2
    close(statistics.mean, np.full((*FRAME, 1), 1.5 / 255))


@pytest.mark.parametrize("algorithm", NORMALIZING)
@pytest.mark.parametrize("skips", [True, False])
def test_a_blank_frame_enters_the_statistics_unless_it_is_skipped(algorithm, skips):
    settings, extras = NORMALIZING[algorithm]
    network = NetworkConfig(normalize_observations=True, skip_blank_frames=skips)
    agent, state = make(algorithm, settings, network)
    after, _ = update(agent, with_params(state, ONLINE), played([0, 2, 3], ACTION, REWARD, extras))
    statistics = after.actor.statistics
    statistics = statistics if algorithm == "a2c" else statistics.observation
    # The frames of s = 0 and 2 were acted on.
    assert float(statistics.samples) == (1 if skips else 2)
    close(statistics.mean, np.full((*FRAME, 1), (2 if skips else 1) / 255))


# Acting took one action at random: log 1/2. The policy that learns stays uniform at s = 0, whatever
# its parameters are: divergences r - 1 - log r of ratios 1, 1, 1 and 2, so 0, 0, 0 and 1 - ln 2.
FOUR = ppo.Extras(np.zeros(4), np.log([0.5, 0.5, 0.5, 0.25]))
MEAN_KL = (1 - np.log(2)) / 4  # 0.077


@pytest.mark.parametrize(
    ("target", "factor"),
    [
        (0.03, 1 / 1.5),  # above twice the target, although three of four minibatches have 0
        (0.10, 1.0),  # between: neither the largest, 0.31, nor the last nor their sum counts
        (0.20, 1.5),  # below half of it, although one minibatch is above
    ],
)
def test_ppo_adapts_its_rate_once_an_epoch(target, factor):
    settings = PPOConfig(rollout_length=4, epochs=3, num_minibatches=4, kl_target=target)
    agent, state = make("ppo", settings, learning_rate=1e-3, schedule="adaptive")
    after, metrics = update(agent, state, played([0] * 5, [0] * 4, [1.0] * 4, FOUR))
    # Each epoch has one rate: 1, f, f² times the first. The next update begins with f³.
    mean_rate = 1e-3 * (1 + factor + factor**2) / 3
    check(metrics, policy_approx_kl=MEAN_KL, loss_learning_rate=mean_rate)
    assert float(after.train_state.learning_rate) == pytest.approx(1e-3 * factor**3, rel=1e-5)


def test_the_rate_of_ppo_stays_within_an_epoch(monkeypatch):
    """Each epoch's rate is the one that its gradient steps take."""
    monkeypatch.setattr(ppo, "adapt", lambda rate, kl, target: 2 * rate)
    settings = PPOConfig(
        rollout_length=2, gamma=0.0, epochs=3, num_minibatches=2, entropy_coef=0.0, value_coef=1.0,
        normalize_advantages=False,
    )  # fmt: skip
    agent, state = make("ppo", settings, learning_rate=0.1, schedule="adaptive")
    # Values of s = 1 to a return of 1, so that each step takes v to v + rate · (1 - v).
    extras = ppo.Extras(np.zeros(2), OLD_LOG_PROB)
    after, metrics = update(agent, state, played([1, 1, 1], [0, 0], [1.0, 1.0], extras))
    check(metrics, loss_learning_rate=(0.1 + 0.2 + 0.4) / 3)
    close(after.actor.params["v"], 1 - (0.9 * 0.9) * (0.8 * 0.8) * (0.6 * 0.6))
    close(after.train_state.learning_rate, 0.8)


@pytest.mark.slow
def test_vtrace_compares_what_learns_with_what_acted():
    settings = VTraceConfig(
        rollout_length=5, window=2, num_minibatches=1, gamma=0.5, entropy_coef=0.0, value_coef=0.5
    )
    agent, state = make("vtrace", settings)
    # The window is the last two steps, from s = 1 to 3.
    extras = vtrace.Extras(np.log([0.5] * 5))
    data = played([9, 9, 9, *S], [0, 0, 0, *ACTION], [7.0, 7.0, 7.0, *REWARD], extras)
    after, metrics = update(agent, with_params(state, ONLINE), data)
    # Ratios 0.75 / 0.5 = 1.5, cut to 1, and 0.1 / 0.5 = 0.2; values 2, 4 and 6.
    # v₁ = 4 + 0.2 · (2 + 0.5 · 6 - 4) = 4.2;  v₀ = 2 + (1 + 0.5 · 4 - 2) + 0.5 · (4.2 - 4) = 3.1;
    # advantages 0.2 · (2 + 3 - 4) = 0.2 and 1 + 0.5 · 4.2 - 2 = 1.1.
    check(
        metrics, policy_ratio=(1.5 + 0.2) / 2, value_target=(3.1 + 4.2) / 2,
        loss_policy=-(1.1 * np.log(0.75) + 0.2 * np.log(0.1)) / 2,
        loss_value=(1.1**2 + 0.2**2) / 2,
    )  # fmt: skip
    # v: 0.5 · -2 · (1.1 · 1 + 0.2 · 2) / 2 = -0.75;  p₁: -(1.1 · 0.25 + 0.2 · -0.9 · 2) / 2.
    close(after.actor.params["v"], 2 + RATE * 0.75)
    close(after.actor.params["p"], [RATE * 0.0425, LN3 - RATE * 0.0425])


# --- action values -------------------------------------------------------------------------------

# q of what learns: s for action 0, 2 s for action 1. Of the target network: 5 s and -s.
LEARNS, TARGET = {"w": [1.0, 2.0]}, {"w": jnp.array([5.0, -1.0])}


@pytest.mark.usefixtures("strict_shapes")
def test_action_values_predict_the_policy_of_evaluation():
    agents = {
        "dqn": replays(DQNConfig, evaluation_epsilon=0.2),
        "nstep_q": NStepQConfig(evaluation_epsilon=0.2),
        "pqn": PQNConfig(evaluation_epsilon=0.2),
    }
    # Action 1 is best; any action with probability 0.2.
    check_predictions(agents, LEARNS, stacks([1, 3])[:, 0], [[0.1, 0.9]] * 2, [2.0, 6.0])


@pytest.mark.usefixtures("strict_shapes")
def test_c51_predicts_the_distribution_of_every_action():
    settings = replays(C51Config, num_atoms=3, v_min=-1.0, v_max=1.0, evaluation_epsilon=0.2)
    agent, state = make("c51", settings)
    prediction = agent.predict(with_params(state, LEARNS_C51).actor, stacks([1])[:, 0])
    close(prediction.distributions, [[[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]])
    close(prediction.support, [-1.0, 0.0, 1.0])
    # Means -0.5 and 0.4: action 1 is best.
    close(prediction.value, [0.4])
    close(prediction.probabilities, [[0.1, 0.9]])


@pytest.mark.usefixtures("strict_shapes")
def test_pqn_keeps_the_values_of_what_acted():
    settings = PQNConfig(gamma=0.5, rollout_length=2, q_lambda=0.5, epochs=2, num_minibatches=1)
    agent, state = make("pqn", settings)
    data = played([1, 2, 3], [0, 1], [1.0, 2.0], pqn.Extras(OLD_VALUE))
    after, metrics = update(agent, with_params(state, LEARNS), data)
    # R₁ = 2 + 0.5 · 2 · 3 = 5;  R₀ = 1 + 0.5 · (0.5 · 20 + 0.5 · 5) = 7.25.
    # Errors 7.25 - 1 and 5 - 4; so w₀ += 0.1 · 6.25 / 2, w₁ += 0.1 · 1 · 2 / 2.
    # The second epoch has the same targets: errors 7.25 - 1.3125 and 5 - 2 · 2.1.
    loss = [(6.25**2 + 1) / 4, (5.9375**2 + 0.8**2) / 4]
    check(metrics, value_target=(7.25 + 5) / 2, loss_squared_error=np.mean(loss))
    close(after.actor.params["w"], [1.3125 + RATE * 5.9375 / 2, 2.1 + RATE * 0.8])


# Of the targets -0.25 and 0.5 on the atoms, or in the bins around, -1, 0 and 1: shares of the
# neighbors; or with σ = 0.75 the distances of the edges ±0.5 and ±1.5 by Φ: of -0.25
# Φ(-5/3, -1/3, 1, 7/3) = 0.047790, 0.369441, 0.841345, 0.990185; of 0.5
# Φ(-8/3, -4/3, 0, 4/3) = 0.003830, 0.091211, 0.5, 0.908789.
TWO_HOT = [[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]]
GAUSSIAN = [
    [0.321651 / 0.942395, 0.471904 / 0.942395, 0.148840 / 0.942395],
    [0.087381 / 0.904959, 0.408789 / 0.904959, 0.408789 / 0.904959],
]


@pytest.mark.parametrize(
    ("value_loss", "end", "histograms"), [("two_hot", 1.0, TWO_HOT), ("hl_gauss", 1.5, GAUSSIAN)]
)
@pytest.mark.usefixtures("strict_shapes")
def test_pqn_learns_distributions_from_histograms_of_its_targets(value_loss, end, histograms):
    settings = PQNConfig(
        gamma=0.5, rollout_length=2, q_lambda=0.5, epochs=1, num_minibatches=1, num_atoms=3,
        value_loss=value_loss, v_min=-end, v_max=end, evaluation_epsilon=0.2,
    )  # fmt: skip
    agent, state = make("pqn", settings)
    state = with_params(state, LEARNS_C51)
    # Means -0.5 and 0.4: action 1 is best.
    prediction = agent.predict(state.actor, stacks([1])[:, 0])
    close(prediction.distributions, [[[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]]])
    close(prediction.support, [-1.0, 0.0, 1.0])
    close(prediction.value, [0.4])
    close(prediction.probabilities, [[0.1, 0.9]])
    _, extras, _ = agent.act(state.actor, stacks([1])[:, 0], jax.random.split(jax.random.key(0), 1))
    close(extras.value, [0.4])
    # R₁ = 0.3 + 0.5 · 0.4 = 0.5;  R₀ = -0.475 + 0.5 · (0.5 · 0.4 + 0.5 · 0.5) = -0.25.
    data = played([1, 1, 1], [0, 1], [-0.475, 0.3], pqn.Extras(np.array([9.0, 0.4])))
    after, metrics = update(agent, state, data)
    taken = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
    loss = -(np.array(histograms) * np.log(taken)).sum(-1).mean()
    check(metrics, value_target=0.125, value_q=-0.05, loss_cross_entropy=loss)
    # The slope of logits is the difference of the distributions, here of half the rows each.
    step = RATE * (np.array(histograms) - taken) / 2
    close(after.actor.params["w"], LEARNS_C51["w"] + step)


@pytest.mark.parametrize(
    ("algorithm", "settings", "extras", "loss"),
    [
        # Row 0 bootstraps from s = 2: 1 + 0.5 · max(2, 4) - 1 = 2, squared.
        ("nstep_q", NStepQConfig(gamma=0.5, rollout_length=2), (), 4.0),
        # By the value of acting: 1 + 0.5 · 20 - 1 = 10, half its square.
        (
            "pqn",
            PQNConfig(gamma=0.5, rollout_length=2, epochs=1, num_minibatches=1),
            pqn.Extras(OLD_VALUE),
            50.0,
        ),
    ],
)
def test_a_row_that_a_reset_ignored_has_no_error(algorithm, settings, extras, loss):
    agent, state = make(algorithm, settings)
    data = played([1, 2, 3], [0, 1], [1.0, 2.0], extras)
    data = data._replace(valid=jnp.array([[True], [False]]))
    after, metrics = update(agent, with_params(state, LEARNS), data)
    check(metrics, loss_squared_error=loss, value_q=1.0)
    assert float(after.actor.params["w"][1]) == LEARNS["w"][1]


@pytest.mark.parametrize(
    ("updates", "target", "returns"),
    [
        # Update 1 of every 2 copies nothing. The target network's best of s = 3 is 5 · 3.
        (1, "n_step", (1 + 0.5 * (2 + 0.5 * 15), 2 + 0.5 * 15)),
        (1, "one_step", (1 + 0.5 * 10, 2 + 0.5 * 15)),
        # The action that follows is 1, which was taken, then 1, the best of what learns: -s each.
        (1, "sarsa", (1 + 0.5 * -2, 2 + 0.5 * -3)),
        # Update 2 copies before it learns: 2 · 3.
        (2, "n_step", (1 + 0.5 * (2 + 0.5 * 6), 2 + 0.5 * 6)),
    ],
)
def test_nstep_q_bootstraps_from_the_target_network(updates, target, returns, strict_shapes):
    settings = NStepQConfig(
        gamma=0.5, epsilon_start=0.0, epsilon_end=0.0, rollout_length=2, target=target,
        target_update_interval=4,
    )  # fmt: skip
    agent, state = make("nstep_q", settings)
    state = with_params(state, LEARNS, updates, target_params=TARGET)
    after, metrics = update(agent, state, played([1, 2, 3], [0, 1], [1.0, 2.0]))
    # q(s, a) are 1 · 1 and 2 · 2.
    errors = returns[0] - 1, returns[1] - 4
    check(
        metrics, value_target=np.mean(returns), value_q=2.5,
        loss_squared_error=np.mean(np.square(errors)),
    )  # fmt: skip
    close(after.actor.params["w"], [1 + RATE * errors[0], 2 + RATE * errors[1] * 2])
    close(after.train_state.target_params["w"], TARGET["w"] if updates == 1 else LEARNS["w"])


def replays(kind, **changes):
    """Rollouts of 5 steps of which one transition can be drawn: from s₃ to s₄."""
    settings = {
        "gamma": 0.5, "rollout_length": 5, "batch_size": 1, "training_intensity": 0.2,
        "replay_capacity": 20, "learning_starts": 0, "target_update_interval": 10,
    }  # fmt: skip
    return kind(**(settings | changes))


@pytest.mark.parametrize(
    ("updates", "double", "target"),
    [
        (1, False, 1 + 0.5 * 10),  # the target network's own best of s = 2: 5 · 2
        (1, True, 1 + 0.5 * -2),  # what it says of the best of what learns, which is action 1
        # A copy was taken: 2 · 2.
        pytest.param(2, False, 1 + 0.5 * 4, marks=pytest.mark.slow),
        (2, True, 1 + 0.5 * 4),
    ],
)
def test_dqn_bootstraps_from_the_target_network(updates, double, target):
    agent, state = make("dqn", replays(DQNConfig, double_q=double))
    state = with_params(state, LEARNS, updates, target_params=TARGET)
    data = played([9, 9, 9, 1, 2, 9], [1, 1, 1, 0, 1], [7.0, 7.0, 7.0, 1.0, 7.0])
    after, metrics = update(agent, state, data)
    # q(1, 0) = 1; Huber's loss has the gradient ±1 of errors 5, -1 and 2.
    error = target - 1
    check(metrics, value_q=1.0, loss_huber=abs(error) - 0.5)
    close(after.actor.params["w"], [1 + RATE * np.sign(error), 2])
    close(after.train_state.target_params["w"], TARGET["w"] if updates == 1 else LEARNS["w"])


@pytest.mark.parametrize(("network", "better"), [("target", 6), ("online", -1)])
def test_munchausen_targets_are_the_target_networks(network, better):
    """Its values are 5 and -1 at s = 1, 10 and -2 at s = 2; the temperature is 2.

    Those of what learns are 1 and 2 at s = 1, of which the log-probability may be.
    """
    settings = replays(
        DQNConfig, munchausen_scale=0.9, munchausen_temperature=2.0, munchausen_clip=-9.0,
        munchausen_network=network,
    )  # fmt: skip
    agent, state = make("dqn", settings)
    state = with_params(state, LEARNS, 1, target_params=TARGET)
    data = played([9, 9, 9, 1, 2, 9], [1, 1, 1, 0, 1], [7.0, 7.0, 7.0, 1.0, 7.0])
    after, metrics = update(agent, state, data)
    # Of action 0: 2 log π = -2 log(1 + exp(-6 / 2)). The soft maximum of 10 and -2 follows.
    bonus = 0.9 * -2 * np.log(1 + np.exp(-better / 2))
    target = 1 + bonus + 0.5 * (10 + 2 * np.log(1 + np.exp(-6)))
    check(metrics, value_q=1.0, loss_huber=target - 1 - 0.5)
    close(after.actor.params["w"], [1 + RATE, 2])


def test_double_dqn_selects_by_the_newest_parameters():
    """Of two gradient steps the first changes which action is best; the target network stays."""
    settings = replays(DQNConfig, double_q=True, training_intensity=0.4)
    agent, state = make("dqn", settings, learning_rate=0.5)
    state = with_params(state, {"w": [1.9, 2.0]}, 1, target_params=TARGET)
    data = played([9, 9, 9, 1, 2, 9], [0, 0, 0, 1, 0], [7.0, 7.0, 7.0, 1.0, 7.0])
    after, metrics = update(agent, state, data)
    # Action 1 is best: 1 + 0.5 · -2 - 2 = -2, so w₁ = 2 - 0.5.
    # Now 0 is: 1 + 0.5 · 10 - 1.5 = 4.5, so w₁ = 1.5 + 0.5.
    check(metrics, loss_huber=(1.5 + 4) / 2, value_q=(2 + 1.5) / 2)
    close(after.actor.params["w"], [1.9, 2.0])


# Logits at s = 1, for atoms -1, 0, 1. What learns has means -0.5 and 0.4, the target network 0.5
# and -0.25.
LEARNS_C51 = {"w": np.log([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])}
TARGET_C51 = {"w": jnp.log(jnp.array([[0.1, 0.3, 0.6], [0.5, 0.25, 0.25]]))}


@pytest.mark.parametrize(
    ("updates", "double", "bootstrap"),
    [
        (1, False, (0.1, 0.3, 0.6)),  # action 0, by the target network alone
        (1, True, (0.5, 0.25, 0.25)),  # action 1, the best of what learns
        (2, False, (0.2, 0.2, 0.6)),  # a copy was taken
    ],
)
def test_c51_bootstraps_from_the_target_network(updates, double, bootstrap):
    settings = replays(C51Config, double_q=double, num_atoms=3, v_min=-1.0, v_max=1.0)
    agent, state = make("c51", settings)
    state = with_params(state, LEARNS_C51, updates, target_params=TARGET_C51)
    data = played([9, 9, 9, 1, 1, 9], [1, 1, 1, 0, 1], [7.0, 7.0, 7.0, 0.5, 7.0])
    after, metrics = update(agent, state, data)
    # The atoms move to 0.5 + 0.5 z = 0, 0.5 and 1; half of the middle one goes to either side.
    low, middle, high = bootstrap
    target = np.array([0, low + middle / 2, middle / 2 + high])
    check(metrics, value_q=-0.5, loss_cross_entropy=-target @ np.log([0.6, 0.3, 0.1]))
    # The gradient of the chosen action's logits is p - t.
    step = np.array([0.6, 0.3, 0.1]) - target
    close(after.actor.params["w"], LEARNS_C51["w"] - RATE * np.array([step, np.zeros(3)]))
    close(
        after.train_state.target_params["w"], TARGET_C51["w"] if updates == 1 else LEARNS_C51["w"]
    )
