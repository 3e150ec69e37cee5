"""Refuses configurations that cannot train, before anything is created or compiled."""

import typing

from jaxrl.atari.games import CATCH_GAMES, known_games
from jaxrl.config import bounds, extensions
from jaxrl.config.algorithm_base import divisors
from jaxrl.config.algorithms import that
from jaxrl.config.convolutions import (
    HADAMAX,
    HAS_FIRST_STRIDE,
    IMPALA_FILTERS,
    pixels_left,
    units_above,
)
from jaxrl.config.network import TORSOS
from jaxrl.config.plan import resolve, scaled_learning_rate
from jaxrl.config.schema import ADAPTIVE_RATES, Config, EnvConfig
from jaxrl.config.toml import settings_of, stems
from jaxrl.config.variations import shown
from jaxrl.errors import UserError, nearest
from jaxrl.formatting import listed

ENGINES = ("auto", "envpool", "atari2600", "catch")


def check_game(game: str, known: typing.Sequence[str]) -> None:
    """Refuses a game that no engine plays, offering the nearest names.

    `known` are the names beside those of other packages' engines.
    """
    if game in known or extensions.engine_of(game):
        return
    known = [*known, *extensions.all_games()]
    near = nearest(game.lower().replace("-", "_"), known)
    hint = f"did you mean {', '.join(near)}?" if near else "`jaxrl games` lists all."
    raise UserError(f"unknown game '{game}': {hint}")


def check(config: Config) -> None:
    """Refuses unknown games, values out of their bounds and combinations that make no sense.

    Raises `UserError`, which names the key and a value that would do.
    """
    check_playable(config)
    bounds.check_local(config.run_dir)
    if type(config.agent) is not settings_of(config.algorithm):
        file = (
            "take one of configs/, as"
            if config.algorithm in stems()
            else (f'write a TOML file with algorithm = "{config.algorithm}", and give it by')
        )
        raise UserError(
            f"algorithm = {config.algorithm}: is set by the configuration file; {file} "
            f"--config {config.algorithm}"
        )
    if config.evaluation.interval and not config.evaluation.episodes:
        raise UserError("evaluation.interval: evaluation.episodes = 0 leaves evaluations out: take "
                        "30, or an interval of 0")  # fmt: skip
    _check_optimizer(config)
    _check_learners(config)
    config.agent.check(config.num_envs)
    _check_network(config)
    _check_frames(config)
    _check_simplices(config)
    extensions.sinks(config.log.sinks)  # who asks for a broken one gets its error
    resolve(config, config.parallel.num_devices)


def check_playable(config: Config) -> None:
    """Refuses values out of their bounds, and games, engines and frames that cannot be played.

    This is all that engines ask of a configuration. Raises `UserError`.
    """
    if config.env.engine in extensions.names(extensions.ENGINES):
        extensions.games(config.env.engine)  # who asks for a broken engine gets its error
    check_game(config.game, known_games())
    bounds.check(config)
    _check_engine(config)
    _check_emulation(config)
    if config.env.frame_width % 4:
        near = round(config.env.frame_width / 4) * 4
        raise UserError(
            f"env.frame_width = {config.env.frame_width}: must be a multiple of 4: take {near}"
        )


def _check_emulation(config: Config) -> None:
    """Refuses what no emulator shows, and emulators' settings for games that have none."""
    if config.game not in CATCH_GAMES:
        return
    for name in ("frame_skip", "mode", "difficulty", "grayscale"):
        value, default = getattr(config.env, name), getattr(EnvConfig, name)
        if value != default:
            raise UserError(
                f"env.{name} = {shown(value)}: {config.game} has no emulator: leave it at "
                f"{shown(default)}"
            )


def _check_engine(config: Config) -> None:
    engine, game = config.env.engine, config.game
    others = extensions.names(extensions.ENGINES)
    if engine not in (*ENGINES, *others):
        known = (*ENGINES, *others)
        near = nearest(engine, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"must be one of {', '.join(known)}"
        raise UserError(f"env.engine = {engine}: {hint}")
    if engine in others:
        plays = game in extensions.games(engine)
    else:
        plays = game in known_games() and (engine == "catch") == (game in CATCH_GAMES)
    if not plays and engine != "auto":
        raise UserError(f"env.engine = {engine}: does not play {game}; leave it at auto")


def _check_frames(config: Config) -> None:
    network, env = config.network, config.env
    plain = {"width": 1, "spectral_norm": False, "max_pool": 0}
    given = [name for name in plain if getattr(network, name) != plain[name]]
    if network.torso != "impala" and given:
        values = listed([f"network.{name} = {shown(getattr(network, name))}" for name in given])
        others = ", ".join(f"network.{name} = {shown(plain[name])}" for name in given)
        raise UserError(f"{values}: only with network.torso = 'impala', else {others}")
    if network.torso not in TORSOS.builtin:
        extensions.torso(network.torso)  # who asks for a broken one gets its error
        return
    if network.torso == "impala":
        _check_pooling(config)
        if network.first_stride != 4 or network.extra_layers:
            raise UserError(
                "network.first_stride and network.extra_layers: impala has none; leave them at 4 "
                "and 0"
            )
        return
    if network.first_stride != 4 and network.torso not in HAS_FIRST_STRIDE:
        raise UserError(
            f"network.first_stride: {network.torso} has strides of its own; leave it at 4"
        )
    if network.extra_layers and network.torso in HADAMAX:
        raise UserError(f"network.extra_layers: {network.torso} has none; leave it at 0")
    for name in ("frame_height", "frame_width"):
        if pixels_left(network, getattr(env, name)) < 1:
            fewer = "" if network.torso in HADAMAX else ", or fewer of network.extra_layers"
            raise UserError(
                f"env.{name} = {getattr(env, name)}: nothing is left of it after the convolutions "
                f"of {network.torso}: take larger frames{fewer}"
            )


def _check_pooling(config: Config) -> None:
    env, most = config.env, config.network.max_pool
    for name in ("frame_height", "frame_width"):
        left = -(-getattr(env, name) // 2 ** len(IMPALA_FILTERS))
        if most > left:
            raise UserError(
                f"network.max_pool = {most}: {left} pixels are left of env.{name} = "
                f"{getattr(env, name)} above the convolutions: take {left} or fewer"
            )


def _check_network(config: Config) -> None:
    network, algorithm = config.network, config.algorithm
    if network.dueling and not config.agent.has_action_values:
        raise UserError(f"network.dueling = true: {algorithm} has no action values; take false")
    if network.remembers and not config.agent.can_remember:
        raise UserError(
            f"network.core = '{network.core}': {algorithm} learns from single steps; only "
            f"{listed(that('can_remember'))} learn from sequences"
        )
    if network.skip_blank_frames and not network.normalize_observations:
        raise UserError(
            "network.skip_blank_frames: only with network.normalize_observations, which knows the "
            "mean frame"
        )
    if network.core_resets == "life" and not config.env.episodic_life:
        raise UserError(
            "network.core_resets = 'life': lives are seen with env.episodic_life only; take game"
        )
    if config.agent.needs_core and not network.remembers:
        raise UserError(f"{config.agent.needs_core} take network.core = 'lstm'")
    if network.noisy and not config.agent.can_be_noisy:
        raise UserError(
            f"network.noisy = true: {algorithm} explores otherwise; only "
            f"{listed(that('can_be_noisy'))} can"
        )


def _check_simplices(config: Config) -> None:
    """Refuses groups that do not divide their layer, of any torso."""
    groups = config.network.simplicial_groups
    if not groups:
        return
    units = units_above(config.network)
    allowed = divisors(units)[:-1] or [0]  # those of one unit would be constant
    if groups not in allowed:
        near = min(allowed, key=lambda n: abs(n - groups))
        raise UserError(
            f"network.simplicial_groups = {groups}: must divide the {units} units of the layer "
            f"above the convolutions (network.units) into groups of two or more: take {near}"
        )


def _check_learners(config: Config) -> None:
    parallel, optimizer = config.parallel, config.optimizer
    if parallel.num_learners and not parallel.sync_every:
        raise UserError(
            f"parallel.num_learners = {parallel.num_learners}: learners have their own parameters "
            "only with --parallel.sync-every 1 or more"
        )
    if not parallel.sync_every:
        return
    if not config.agent.can_learn_apart:
        raise UserError(
            f"parallel.sync_every: {config.algorithm} keeps one target network for all; leave it "
            "at 0"
        )
    if parallel.lag:
        raise UserError("parallel.lag: separate learners have none; leave it, or "
                        "parallel.sync_every, at 0")  # fmt: skip
    if optimizer.schedule == "adaptive":
        raise UserError(
            "parallel.sync_every: learners share one learning rate; take constant or linear"
        )
    if optimizer.lr_scaling != "none":
        raise UserError(
            "optimizer.lr_scaling: each learner's batch keeps its size; set optimizer.learning_rate"
        )


def _check_optimizer(config: Config) -> None:
    optimizer, algorithm = config.optimizer, config.algorithm
    if optimizer.lr_scaling != "none" and not config.agent.batch_grows_with_envs:
        raise UserError(
            f"optimizer.lr_scaling: {algorithm}'s batches do not grow with num_envs; take 'none'"
        )
    if optimizer.name != "rmsprop" and max(optimizer.decay, optimizer.decay_mean) >= 1:
        raise UserError(
            "optimizer.decay and optimizer.decay_mean: must be below 1 for " + optimizer.name
        )
    if optimizer.schedule != "adaptive":
        return
    if not config.agent.can_adapt_rate:
        raise UserError(
            f"optimizer.schedule = 'adaptive': only {listed(that('can_adapt_rate'))} has it; take "
            "constant or linear"
        )
    if config.agent.gradient_steps(config.num_envs) == 1:
        raise UserError(
            "optimizer.schedule = 'adaptive': the policy does not diverge within one gradient "
            "step; take more of agent.epochs or agent.num_minibatches"
        )
    least, most = ADAPTIVE_RATES
    start = scaled_learning_rate(config)
    if not least <= start <= most:
        raise UserError(
            f"optimizer.learning_rate = {start:g}: the adaptive schedule starts "
            f"between {least} and {most}"
        )
