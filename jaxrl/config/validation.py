"""Refuses configurations that cannot train, before anything is created or compiled."""

import math
import typing
from fractions import Fraction
from typing import Any

from jaxrl.config.algorithms import (
    ALGORITHMS,
    C51Config,
    NStepQConfig,
    PPOConfig,
    PQNConfig,
    ReplayConfig,
    ValueConfig,
    VTraceConfig,
)
from jaxrl.config.schema import ADAPTIVE_RATES, Config, convolutions, gradient_steps
from jaxrl.errors import UserError, nearest

# The least value of each key; keys of [agent] that an algorithm has not are left out.
AT_LEAST: dict[str, float] = {
    "total_steps": 1,
    "seed": 0,
    "num_envs": 1,
    "num_devices": 0,
    "sync_every": 0,
    "num_learners": 0,
    "num_threads": 0,
    "groups": 1,
    "random_start_steps": 0,
    "noop_max": 1,  # EnvPool's process dies of 0
    "max_episode_steps": 1,
    "log_interval": 1,
    "checkpoint_interval": 1,
    "keep_checkpoints": 1,
    "checkpoint_failures": 1,
    "stuck_after": 0,
    "evaluation_episodes": 0,
    "lag": 0,
    "network.first_stride": 1,
    "network.extra_layers": 0,
    "agent.rollout_length": 1,
    "agent.micro_batch": 0,
    "agent.entropy_coef": 0,
    "agent.value_coef": 0,
    "agent.log_epsilon": 0,
    "agent.epochs": 1,
    "agent.num_minibatches": 1,
    "agent.clip": 0,
    "agent.num_atoms": 2,
    "agent.n_step": 1,
    "agent.batch_size": 1,
    "agent.window": 1,
    "agent.updates_per_rollout": 1,
    "agent.clip_rho": 0,
    "agent.clip_c": 0,
    "agent.replay_capacity": 1,
    "agent.learning_starts": 0,
    "agent.target_update_interval": 1,
    "agent.epsilon_decay_steps": 1,
    "optimizer.learning_rate": 0,
    "optimizer.recipe_envs": 0,
    "optimizer.max_grad_norm": 0,
    "optimizer.initial_scale": 0,
}
UNLIMITED = ("agent.clip_rho", "agent.clip_c")  # inf cuts nothing
FRACTIONS = (
    "repeat_action_probability",
    "agent.gamma",
    "agent.gae_lambda",
    "agent.vtrace_lambda",
    "agent.q_lambda",
    "agent.priority_exponent",
    "agent.importance_exponent",
    "agent.epsilon_start",
    "agent.epsilon_end",
    "agent.evaluation_epsilon",
    "optimizer.decay",
    "optimizer.decay_mean",
)
LEAST_SPREAD = 10  # environments that have the shares 0.4, 0.3 and 0.3
POSITIVE = ("optimizer.eps", "agent.kl_target", "agent.training_intensity")
INT32 = (
    "max_episode_steps",
    "num_envs",
    "noop_max",
    "num_threads",
    "num_learners",
    "sync_every",
    "lag",
    "seed",
    "agent.rollout_length",
    "agent.num_atoms",
    "agent.n_step",
    "agent.batch_size",
    "agent.window",
    "agent.updates_per_rollout",
    "agent.epochs",
    "agent.training_intensity",
    "agent.target_update_interval",
    "agent.epsilon_decay_steps",
)


def _value(config: Config, name: str) -> Any:
    """The value of a dotted key, or None where the algorithm has no such key."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


def check_game(game: str, known: typing.Sequence[str]) -> None:
    """Refuses a game that is not among `known`, offering the nearest names."""
    if game in known:
        return
    near = nearest(game.lower().replace("-", "_"), known)
    hint = f"did you mean {', '.join(near)}?" if near else "`jaxrl games` lists all."
    raise UserError(f"unknown game '{game}': {hint}")


def check(config: Config) -> None:
    """Refuses values out of their range, and combinations that make no sense."""
    for name, least in AT_LEAST.items():
        value = _value(config, name)
        if value is not None and not value >= least:  # nan is refused too
            raise UserError(f"{name} = {value}: must be at least {least}")
        if value is not None and value >= 2**63 and name not in UNLIMITED:
            raise UserError(f"{name} = {value}: must be below 2^63")
    for name in FRACTIONS:
        value = _value(config, name)
        if value is not None and not 0 <= value <= 1:
            raise UserError(f"{name} = {value}: must lie between 0 and 1")
    for name in POSITIVE:
        value = _value(config, name)
        if value is not None and not 0 < value < float("inf"):
            raise UserError(f"{name} = {value}: must be above 0")
    for name in INT32:
        value = _value(config, name)
        if value is not None and value >= 2**31:
            raise UserError(f"{name} = {value}: must be below 2147483648")
    agent = config.agent
    if type(agent) is not ALGORITHMS[config.algorithm]:
        raise UserError(
            f"algorithm = {config.algorithm}: is set by the configuration file; take one of "
            f"configs/, as --config {config.algorithm}"
        )
    _check_optimizer(config)
    _check_learners(config)
    if isinstance(agent, C51Config):
        _check_atoms(agent)
    if isinstance(agent, ReplayConfig):
        _check_replay(config, agent)
    _check_network(config)
    _check_frames(config)
    check_divides(config, max(config.num_devices, 1))


def _check_frames(config: Config) -> None:
    network, sides = config.network, ("frame_height", "frame_width")
    for name in sides:
        if not 16 <= getattr(config, name) <= 512:
            raise UserError(f"{name} = {getattr(config, name)}: must lie between 16 and 512")
    if config.frame_width % 4:
        near = round(config.frame_width / 4) * 4
        raise UserError(f"frame_width = {config.frame_width}: must be a multiple of 4: take {near}")
    if network.torso == "impala":
        if network.layer_norm:
            raise UserError("network.layer_norm = true: impala has none; take nips or nature")
        if network.first_stride != 4 or network.extra_layers:
            raise UserError("network.first_stride and network.extra_layers: impala has none")
        return
    if network.first_stride > 8:  # the kernel's size
        raise UserError(f"network.first_stride = {network.first_stride}: must be at most 8")
    if network.extra_layers > 16:
        raise UserError(f"network.extra_layers = {network.extra_layers}: must be at most 16")
    for name in sides:
        length = getattr(config, name)
        for _, size, stride in convolutions(network)[0]:
            length = (length - size) // stride + 1
        if length < 1:
            raise UserError(
                f"{name} = {getattr(config, name)}: nothing is left of it after the convolutions "
                f"of {network.torso}: take larger frames, or fewer of network.extra_layers"
            )


def _check_network(config: Config) -> None:
    network, algorithm = config.network, config.algorithm
    if network.dueling and not isinstance(config.agent, ValueConfig):
        raise UserError(f"network.dueling = true: {algorithm} has no action values; drop it")
    if network.noisy and not isinstance(config.agent, ReplayConfig):
        raise UserError(
            f"network.noisy = true: {algorithm} explores otherwise; only dqn and c51 can"
        )


def _check_learners(config: Config) -> None:
    if config.num_learners and not config.sync_every:
        raise UserError(
            f"num_learners = {config.num_learners}: learners have parameters of their own only "
            "with --sync-every 1 or more"
        )
    if not config.sync_every:
        return
    if isinstance(config.agent, ReplayConfig | NStepQConfig):
        raise UserError(
            f"sync_every: {config.algorithm} keeps one target network for all; leave it at 0"
        )
    if config.lag:
        raise UserError("lag: learners of their own have none; leave it, or sync_every, at 0")
    if config.optimizer.schedule == "adaptive":
        raise UserError("sync_every: learners share one learning rate; take constant or linear")
    if config.optimizer.lr_scaling != "none":
        raise UserError(
            "optimizer.lr_scaling: each learner's batch stays as it is; set optimizer.learning_rate"
        )


def _check_optimizer(config: Config) -> None:
    optimizer, algorithm = config.optimizer, config.algorithm
    if optimizer.lr_scaling != "none" and isinstance(config.agent, ReplayConfig):
        raise UserError(
            f"optimizer.lr_scaling: {algorithm}'s batches do not grow with num_envs; drop it"
        )
    if optimizer.name != "rmsprop" and max(optimizer.decay, optimizer.decay_mean) >= 1:
        raise UserError(
            "optimizer.decay and optimizer.decay_mean: must be below 1 for " + optimizer.name
        )
    if optimizer.schedule != "adaptive":
        return
    if algorithm != "ppo":
        raise UserError("optimizer.schedule = 'adaptive': only ppo has it; take constant or linear")
    if gradient_steps(config) == 1:
        raise UserError(
            "optimizer.schedule = 'adaptive': the policy does not diverge within one gradient "
            "step; take more of agent.epochs or agent.num_minibatches"
        )
    least, most = ADAPTIVE_RATES
    start = config.initial_learning_rate()
    if not least <= start <= most:
        raise UserError(
            f"optimizer.learning_rate = {start:g}: the adaptive schedule starts "
            f"between {least} and {most}"
        )


def _check_atoms(agent: C51Config) -> None:
    if not -1e6 <= agent.v_min < agent.v_max <= 1e6:
        raise UserError(
            f"agent.v_min = {agent.v_min} must be below agent.v_max = {agent.v_max}, "
            "both within a million"
        )
    # In float32 the atoms must still be apart.
    spacing = (agent.v_max - agent.v_min) / (agent.num_atoms - 1)
    if spacing < 1e-5 * max(abs(agent.v_min), abs(agent.v_max)):
        raise UserError(
            f"agent.v_min = {agent.v_min} and agent.v_max = {agent.v_max} are too close for "
            f"agent.num_atoms = {agent.num_atoms}"
        )


def _check_replay(config: Config, agent: ReplayConfig) -> None:
    smallest = config.num_envs * (agent.n_step + 4 + 2 * agent.rollout_length)
    if agent.replay_capacity < smallest:
        raise UserError(
            f"agent.replay_capacity = {agent.replay_capacity}: {config.num_envs} environments "
            f"need at least {smallest}"
        )
    if agent.learning_starts > agent.replay_capacity:
        raise UserError(
            f"agent.learning_starts = {agent.learning_starts}: must not be above "
            f"agent.replay_capacity = {agent.replay_capacity}"
        )


def rows_per_gradient(config: Config, num_devices: int) -> int:
    """What a gradient step learns from on each device or learner: rows, for V-trace windows."""
    agent, parts = config.agent, config.num_learners or num_devices
    steps = config.steps_per_update() // parts
    if isinstance(agent, PPOConfig | PQNConfig):
        return steps // agent.num_minibatches
    if isinstance(agent, VTraceConfig):
        return config.num_envs // parts // agent.num_minibatches
    if isinstance(agent, ReplayConfig):
        return agent.batch_size // num_devices
    return steps


def check_divides(config: Config, num_devices: int) -> None:
    """Refuses environments or batches that do not divide, naming the nearest that do."""
    if config.num_learners % num_devices:
        fitting = max(1, round(config.num_learners / num_devices)) * num_devices
        raise UserError(
            f"num_learners = {config.num_learners} does not divide among {num_devices} devices: "
            f"take {fitting}, or 0 for one on each"
        )
    parts = config.num_learners or num_devices
    owner, option = (
        ("learner", "num-learners") if config.num_learners else ("device", "num-devices")
    )
    if config.num_envs < parts:
        raise UserError(
            f"num_envs = {config.num_envs} is too few for {parts} {owner}s: take "
            f"{parts}, or --{option} {max(config.num_envs, 1)}"
        )
    if config.num_envs % parts:
        below = config.num_envs // parts * parts
        raise UserError(
            f"num_envs = {config.num_envs} does not divide among {parts} {owner}s: "
            f"take {below} or {below + parts}"
        )
    if config.groups > 1 and parts > num_devices:
        raise UserError("groups: several learners of a device play in one group; leave it at 1")
    envs = config.num_envs // parts
    whole = f"the {envs} environments of a {owner} (num_envs)"
    _check_one_of("groups", config.groups, _divisors(envs), whole)
    agent, steps = config.agent, config.steps_per_update()
    if isinstance(agent, ValueConfig) and agent.epsilon_spread:
        _check_spread(config, envs, owner)
    if steps >= 2**31:
        raise UserError(f"num_envs x agent.rollout_length = {steps}: must be below 2147483648")
    if isinstance(agent, PPOConfig | PQNConfig):
        length, count = agent.rollout_length, agent.num_minibatches
        whole = f"agent.rollout_length = {length}"
        _check_one_of("agent.num_minibatches", count, _divisors(length), whole)
    elif isinstance(agent, VTraceConfig):
        count = agent.num_minibatches
        each = math.lcm(count, config.groups) * parts
        fitting = max(each, round(config.num_envs / each) * each)
        hint = f", or num_envs = {fitting}"
        _check_one_of("agent.num_minibatches", count, _divisors(envs), whole, hint)
        least = -(-agent.num_minibatches // agent.updates_per_rollout) * agent.rollout_length
        if agent.window < least:
            raise UserError(
                f"agent.window = {agent.window}: is shorter than what is played between two turns "
                f"of a minibatch, so that steps would be left out: take at least {least}, or "
                "fewer of agent.num_minibatches, or a shorter agent.rollout_length"
            )
    elif isinstance(agent, ReplayConfig):
        played = Fraction(agent.training_intensity).limit_denominator(10**6) * steps
        if played >= 2**31:
            raise UserError(f"agent.training_intensity = {agent.training_intensity}: is too large")
        sizes = [n for n in _divisors(int(played)) if n % num_devices == 0]
        what = "num_envs x agent.rollout_length x agent.training_intensity"
        if played.denominator > 1 or not sizes:
            share = "be a whole number" if num_devices == 1 else f"divide among {num_devices}"
            near = max(1, round(played / num_devices)) * num_devices / steps
            raise UserError(
                f"agent.training_intensity = {agent.training_intensity}: the {float(played):g} "
                f"transitions to train on per update ({what}) must {share}: take {near:.6g}"
            )
        what = f"the {int(played)} transitions to train on per update ({what})"
        _check_one_of("agent.batch_size", agent.batch_size, sizes, what)
    if agent.micro_batch:
        rows = rows_per_gradient(config, num_devices)
        what = f"the {rows} {'windows' if config.algorithm == 'vtrace' else 'rows'} of a gradient"
        _check_one_of("agent.micro_batch", agent.micro_batch, _divisors(rows), what)


def _check_spread(config: Config, envs: int, owner: str) -> None:
    """Epsilons are given by place among the environments that are answered together."""
    if config.groups > 1:
        raise UserError("agent.epsilon_spread: is of all environments at once; leave groups at 1")
    if envs < LEAST_SPREAD:
        raise UserError(
            f"agent.epsilon_spread: the {envs} environments of a {owner} are too few for its "
            f"shares: take {LEAST_SPREAD} or more on each, or --agent.no-epsilon-spread"
        )


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _check_one_of(name: str, value: int, allowed: list[int], whole: str, hint: str = "") -> None:
    if value not in allowed:
        near = min(allowed, key=lambda n: abs(n - value))
        raise UserError(f"{name} = {value} does not divide {whole}: take {near}{hint}")
