"""Breaks one line at a time in a copy of the tree, and runs the test that must notice.

    python tools/mutants.py                     all of them, some twenty minutes
    python tools/mutants.py ppo test_envpool    those with this in their name, file or test
    python tools/mutants.py --list

All the tests that are named must pass before anything is broken. The exit status is 1 where a
mutant survives, where its text is not in the file exactly once, or where its test did not run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".git", ".venv", "runs", "build", "*.egg-info", "__pycache__", ".*cache", ".hypothesis")
CACHE = ".pytest_cache/jax"  # compiled programs, by their text: those of a mutant are others
DEADLINE = 600  # seconds of one test; a mutant that never ends is noticed too
# By file of jaxrl/. A mutant's name and its test; indented the text, which occurs once, and what
# it becomes.
TABLE = """
# config/value_based.py
evaluation-explores-as-training: agents/test_c51.py::test_evaluation_explores_as_it_says
    epsilon_start=rate, epsilon_end=rate, =>
# agents/q_learning.py
dqn-no-target: agents/test_updates.py::test_dqn_bootstraps_from_the_target_network
    outputs = forward(network, target_params, => outputs = forward(network, actor.params,
c51-no-target: agents/test_updates.py::test_c51_bootstraps_from_the_target_network
    outputs = forward(network, target_params, => outputs = forward(network, actor.params,
dqn-never-double: agents/test_updates.py::test_dqn_bootstraps_from_the_target_network
    if setup.settings.double_q: => if False:
dqn-double-reversed: agents/test_updates.py::test_dqn_bootstraps_from_the_target_network
    bootstrap(setup.method, outputs, selector) => bootstrap(setup.method, selector, outputs)
dqn-older-steps: agents/test_updates.py::test_double_dqn_selects_by_the_newest_parameters
    actor = actor._replace(params=learned.params) =>
priorities-never-change: agents/test_dqn.py::test_priorities_are_the_newest_errors
    priorities=prioritized.update(memory, place, errors, exponent) =>
importance-ignored: agents/test_dqn.py::test_rows_count_by_their_importance
    batch.weight * batch.importance * losses => batch.weight * losses
# agents/replay_learner.py
replay-learns-too-soon:
    agents/test_c51.py::test_learning_starts_when_enough_is_played_and_the_target_network_lags
    (state.memory.steps[0] >= setup.settings.learning_starts / sizes.num_envs) => jnp.bool_(True)
dqn-no-copy: agents/test_updates.py::test_dqn_bootstraps_from_the_target_network
    copy_target(state, sizes.target_interval).train_state => state.train_state
one-draw-for-all-gradient-steps:
    agents/test_replay_learner.py::test_every_gradient_step_has_a_key_of_its_own
    step(learned, keys[i]) => step(learned, keys[0])
r2d2-no-copy: agents/test_r2d2.py::test_the_target_network_is_copied_every_second_update
    copy_target(state, sizes.target_interval).train_state => state.train_state
# agents/learner.py
dqn-copy-early: agents/test_updates.py::test_dqn_bootstraps_from_the_target_network
    state.actor.updates, every => state.actor.updates + 1, every
# agents/r2d2/agent.py
r2d2-no-target: agents/test_r2d2.py::test_neither_the_burn_in_nor_the_target_has_a_gradient
    unroll(target_params)) => unroll(params))
r2d2-never-double: agents/test_r2d2.py::test_hand_worked_targets
    if config.double_q else => if False else
r2d2-importance-ignored: agents/test_r2d2.py::test_hand_worked_loss
    batch.weight * batch.importance[:, None] * => batch.weight *
r2d2-priority-of-resets: agents/test_r2d2.py::test_a_priority_is_of_the_rows_that_are_transitions
    jnp.where(valid, jnp.abs(error), 0.0) => jnp.abs(error)
# agents/nstep_q/agent.py
nstep-q-no-target: agents/test_updates.py::test_nstep_q_bootstraps_from_the_target_network
    target = actor._replace(params=target_params) => target = actor
nstep-q-no-copy: agents/test_updates.py::test_nstep_q_bootstraps_from_the_target_network
    copy_target(state, setup.target_interval).train_state => state.train_state
sarsa-best-action: agents/test_updates.py::test_nstep_q_bootstraps_from_the_target_network
    distributions.select(values, action) if sarsa else values.max(axis=-1) => values.max(axis=-1)
# agents/pqn/agent.py
pqn-no-bootstrap: agents/test_updates.py::test_pqn_keeps_the_values_of_what_acted
    bootstrap[None]] => 0 * bootstrap[None]]
pqn-older-steps: agents/test_updates.py::test_pqn_keeps_the_values_of_what_acted
    objective, learned, batch, rate) =>
    objective, Learned(actor.params, learned.opt_state), batch, rate)
hl-gauss-ratio-ignored:
    agents/test_updates.py::test_pqn_learns_distributions_from_histograms_of_its_targets
    deviation=settings.sigma_ratio * width => deviation=width
hl-gauss-values-at-edges:
    agents/test_updates.py::test_pqn_learns_distributions_from_histograms_of_its_targets
    support = histograms.centers(edges) => support = edges[1:]
hl-gauss-bootstraps-from-logits:
    agents/test_updates.py::test_pqn_learns_distributions_from_histograms_of_its_targets
    bootstrap = setup.head.values(newest).max(axis=-1) =>
    bootstrap = newest.reshape(len(newest), -1).max(axis=-1)
hl-gauss-acts-by-logits:
    agents/test_updates.py::test_pqn_learns_distributions_from_histograms_of_its_targets
    values=partial(histograms.mean, support=support) => values=lambda logits: logits.mean(axis=-1)
# agents/a2c/agent.py
a2c-no-bootstrap: agents/test_updates.py::test_a2c_keeps_the_values_of_what_acted
    bootstrap[None]] => 0 * bootstrap[None]]
a2c-rewards-certainty: agents/test_a2c.py::test_hand_worked_loss_with_an_invalid_row
    - config.entropy_coef => + config.entropy_coef
# agents/ppo/agent.py
ppo-no-bootstrap: agents/test_updates.py::test_ppo_compares_what_learns_with_what_acted
    bootstrap[None]] => 0 * bootstrap[None]]
ppo-bootstrap-units: agents/test_updates.py::test_ppo_bootstraps_in_units_of_the_return
    bootstrap = to_returns(outputs_of(setup, actor, newest).value, value_statistics) =>
    bootstrap = outputs_of(setup, actor, newest).value
ppo-ratio-to-itself: agents/test_updates.py::test_ppo_compares_what_learns_with_what_acted
    log_prob=trajectory.extras.log_prob, =>
    log_prob=distributions.select(distributions.log_probabilities(jax.vmap(lambda x: outputs_of(
    setup, actor, x))(trajectory.observation[:-1]).logits), trajectory.action),
ppo-clips-the-wrong-side: agents/test_ppo.py::test_hand_worked_loss
    surrogate = jnp.minimum( => surrogate = jnp.maximum(
ppo-older-steps: agents/test_updates.py::test_a_second_epoch_of_ppo_goes_on_from_the_first
    before = Learned(params, opt_state) => before = Learned(actor.params, opt_state)
ppo-adapt-often: agents/test_updates.py::test_ppo_adapts_its_rate_once_an_epoch
    TrainState(opt_state, rate)), metrics | => TrainState(opt_state, adapt(rate,
    metrics["policy/approx_kl"], setup.settings.kl_target) if setup.adaptive else rate)), metrics |
ppo-adapt-on-last: agents/test_updates.py::test_ppo_adapts_its_rate_once_an_epoch
    kl = jnp.mean(metrics["policy/approx_kl"]) => kl = metrics["policy/approx_kl"][-1]
ppo-entropy-stays: agents/test_updates.py::test_ppo_lowers_its_entropy_bonus
    entropy_coef = setup.entropy_coef(actor.updates) => entropy_coef = setup.entropy_coef(0)
ppo-statistics-last-frame: agents/test_updates.py::test_a_loss_sees_the_statistics_of_acting
    stacks(trajectory.observation)[:-1, ..., -1] => stacks(trajectory.observation)[..., -1]
# agents/vtrace/agent.py
vtrace-ratio-to-itself: agents/test_updates.py::test_vtrace_compares_what_learns_with_what_acted
    jnp.exp(log_prob - steps.extras.log_prob) => jnp.exp(log_prob - log_prob)
# ops/returns.py
returns-ignore-terminations:
    ops/test_returns.py::test_hand_worked_episode_with_termination_and_reset
    delta_t = reward_t + continuation_t * value[1:] => delta_t = reward_t + gamma * value[1:]
returns-run-through-resets:
    ops/test_returns.py::test_truncation_bootstraps_from_the_frame_that_came_with_it
    jnp.where(valid, delta + trace * x_tp1, 0.0) => delta + trace * x_tp1
vtrace-traces-not-cut: agents/test_vtrace.py::test_its_settings_reach_the_returns
    jnp.minimum(clip_c, ratio_t) => ratio_t
vtrace-advantage-of-one-step: ops/test_returns.py::test_hand_worked_vtrace
    value_tp1 + lambda_ * jnp.concatenate([later, last], axis=time_axis) => value_tp1
# ops/distributions.py
c51-atoms-not-clipped: agents/test_c51.py::test_loss_equals_rlax
    clipped = jnp.clip(atoms_tp1, support[0], support[-1]) => clipped = atoms_tp1
# replay/buffer.py
replay-draws-beyond-the-newest:
    replay/test_replay.py::test_draws_are_uniform_over_environments_and_steps
    replay.steps[0] - n_step - first_step(replay) => replay.steps[0] - first_step(replay)
replay-draws-broken-stacks:
    replay/test_replay.py::test_draws_are_uniform_over_environments_and_steps
    valid.shape[1], 0) + STACK_SIZE - 1 => valid.shape[1], 0)
replay-stacks-two-games: replay/test_replay.py::test_samples_equal_what_was_played
    jnp.max(jnp.where(fresh, steps, 0), axis=1, keepdims=True) => steps[:, :1]
replay-sums-beyond-a-reset: replay/test_replay.py::test_samples_equal_what_was_played
    jnp.cumprod(replay.ring.valid[env, steps], axis=1) => replay.ring.valid[env, steps]
replay-discounts-beyond-a-reset: replay/test_replay.py::test_hand_worked_windows
    discount = jnp.where(inside > 0, discount, 1.0) => pass
replay-learns-from-resets: replay/test_replay.py::test_hand_worked_windows
    valid=replay.ring.valid[place.env, steps[:, 0]], => valid=jnp.ones(len(place.env), bool),
# replay/sequences.py
sequences-of-other-states: replay/test_sequences.py
    jnp.where(begins, observation.core[0], => jnp.where(begins, observation.core[1],
sequences-drawn-unfinished: replay/test_sequences.py
    (start + form.steps <= steps) => (start + form.steps <= steps + 2)
# replay/prioritized.py
priorities-of-zero-stay:
    replay/test_prioritized.py::test_a_transition_without_an_error_can_be_drawn_again
    LARGEST) + SMALLEST) ** exponent => LARGEST)) ** exponent
priorities-of-rows-by-the-blocks-number:
    replay/test_prioritized.py::test_rows_below_the_precision_of_the_sum_are_drawn_alike
    of_rows * within[:, -1]) => of_blocks * within[:, -1])
priorities-weigh-the-wrong-way: replay/test_prioritized.py::test_hand_worked_weights
    ** -exponent => ** exponent
priorities-draw-resets:
    replay/test_prioritized.py::test_what_may_be_drawn_is_what_uniform_replay_draws_from
    jnp.where(memory.ring.valid[:, rows], priorities.largest, 0.0) =>
    jnp.full_like(memory.ring.reward[:, rows], priorities.largest[0])
# ops/exploration.py
ladder-by-device: agents/test_r2d2.py::test_environments_explore_by_their_number
    batches.global_indices(size) / (num_envs - 1) => jnp.arange(size) / (num_envs - 1)
epsilon-reversed: ops/test_exploration.py::test_epsilon_greedy_is_greedy_but_for_epsilon
    (keys[:, 0]) < epsilon => (keys[:, 0]) >= epsilon
epsilon-falls-by-updates:
    ops/test_exploration.py::test_epsilon_falls_by_the_steps_of_all_environments
    updates * steps, num_envs => updates, num_envs
# replay/minibatches.py
minibatches-without-permutation:
    agents/test_ppo.py::test_minibatches_permute_every_environments_steps_whatever_the_devices
    jax.random.permutation(k, config.rollout_length) => jnp.arange(config.rollout_length)
minibatches-count-resets: agents/test_ppo.py::test_invalid_rows_change_nothing
    weight=row_weights(batch.weight > 0), => weight=row_weights(batch.weight >= 0),
sequences-count-resets: program/test_recurrent.py::test_ppo_takes_whole_sequences
    (weight=row_weights(batch.weight > 0)) => (weight=row_weights(batch.weight >= 0))
# ops/gradients.py
weights-by-device:
    ops/test_optimizers.py::test_row_weights_count_every_valid_row_of_all_devices_once
    mean_over_devices(rows.sum()) => rows.sum()
gradients-by-device: agents/test_dqn.py::test_devices_share_parameters_whatever_their_priorities
    return *mean_over_devices((gradients, sums)), aux => return gradients, sums, aux
gradients-of-the-last-micro-batch: agents/test_a2c.py::test_micro_batches_add_up_to_one_gradient
    jax.tree.map(jnp.add, total, (gradients, sums)) => (gradients, sums)
# ops/optimizers.py
rate-does-not-fall: ops/test_optimizers.py::test_linear_schedule_ends_at_zero
    optax.linear_schedule(start, 0.0, => optax.linear_schedule(start, start,
# program/nonfinite.py
devices-skip-alone: program/test_nonfinite.py::test_devices_skip_together
    mean_over_devices(here.astype(jnp.float32)) == 1 => here
skipped-updates-not-counted:
    program/test_nonfinite.py::test_a_skipped_update_leaves_no_trace_but_in_the_count
    ._replace(updates=new.actor.updates) =>
skipped-updates-copy-no-target:
    program/test_nonfinite.py::test_a_skipped_update_still_copies_the_target
    old = agent.skip(state) => old = state
# networks/running_statistics.py
variance-without-the-means:
    networks/test_networks.py::test_statistics_equal_numpy_over_batches_and_devices
    + jnp.square(delta) * share * (1 - share) =>
# networks/actors.py
statistics-last-frame: agents/test_updates.py::test_a_loss_sees_the_statistics_of_acting
    stacks(trajectory.observation)[:-1, ..., -1] => stacks(trajectory.observation)[..., -1]
# networks/heads.py
dueling-not-centered: agents/test_c51.py::test_dueling_is_the_value_plus_the_centred_advantage
    x - x.mean(axis=1, keepdims=True) => x
# networks/core.py
core-carries-on: networks/test_core.py::test_nothing_before_a_reset_reaches_the_steps_after_it
    state = jnp.where(fresh[:, None], 0.0, state) => state = state + 0
core-reward-not-clipped:
    networks/test_core.py::test_the_last_action_and_the_clipped_reward_are_inputs
    jnp.clip(steps.last_reward, -1, 1) => steps.last_reward
# program/async_learners.py
learners-push-in-reverse: program/test_async_learners.py::test_pushes_worked_by_hand
    jnp.float32(decay) ** later => jnp.float32(decay) ** (total - 1 - later)
# program/rollout.py
resets-are-valid: envs/test_envpool.py::test_the_row_after_an_end_is_a_dummy_and_is_marked
    valid=~timestep.reset => valid=timestep.reset | True
time-limits-terminate: envs/test_envpool.py::test_truncation_bootstraps_from_the_true_last_frame
    1.0 - timestep.terminated => 1.0 - (timestep.terminated | timestep.truncated)
update-before-sends: program/test_rollout.py::test_the_compiled_program_sends_before_it_updates
    trajectory = _after(trajectory, [state.env for state in groups]) => pass
groups-no-order:
    program/test_rollout.py::test_of_two_groups_one_always_steps_while_the_other_is_answered
    state = _follow(state, after[-1] if after else groups[-1]) => pass
# program/observations.py
stacks-not-refilled:
    program/test_rollout.py::test_stack_is_refilled_by_a_new_game_and_shifted_otherwise
    return timestep.reset & (previous => return False & timestep.reset & (previous
stacks-not-refilled-within-a-reset:
    program/test_rollout.py::test_a_game_that_ends_during_a_reset_refills_the_stack
    (previous.game_over | timestep.game_over) => previous.game_over
stacks-refilled-after-a-life: envs/test_envpool.py::test_stacks_equal_those_of_envpool
    & (previous.game_over | timestep.game_over) =>
recurrent-state-not-zeroed:
    program/test_recurrent.py::test_actions_and_rewards_are_seen_one_step_later
    core=jnp.where(fresh[:, None], 0.0, choice.core) => core=choice.core
lives-not-forgotten: program/test_recurrent.py::test_a_lost_life_is_forgotten_where_configured
    timestep.reset if core.forgets_lives else =>
    new_game(previous, timestep) if core.forgets_lives else
# program/episode_statistics.py
games-of-others-count:
    program/test_episode_statistics.py::test_games_whose_start_others_played_are_not_counted
    ends = over & episodes.counted => ends = over
# envs/base.py
envpool-fires-with-all-actions:
    envs/test_envpool.py::test_no_fire_is_pressed_for_agents_with_all_actions
    not env.fire_reset or env.full_action_space => not env.fire_reset
# envs/envpool/engine.py
envpool-hides-ends-within-a-reset: envs/test_envpool.py::test_lives_never_rise_without_a_closed_game
    (info["lives"] > before.lives) => (info["lives"] != info["lives"])
envpool-ends-a-game-twice:
    envs/test_envpool.py::test_a_game_over_that_a_reset_reports_is_told_by_the_row_after_it
    (game_over & ~before.done) | unseen => game_over | unseen
envpool-fires-always: evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    use_fire_reset=presses_fire(game, env), =>
envpool-resets-not-marked: envs/test_envpool.py::test_the_row_after_an_end_is_a_dummy_and_is_marked
    reset=before.done, => reset=before.done & False,
envpool-without-lives: envs/test_envpool.py::test_scores_are_of_whole_games_and_unclipped
    episodic_life=env.episodic_life, =>
envpool-never-clips: envs/test_envpool.py::test_scores_are_of_whole_games_and_unclipped
    reward_clip=env.reward_clip, =>
envpool-always-clips: evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    reward_clip=env.reward_clip, => reward_clip=True,
envpool-without-noop-max: evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    noop_max=env.noop_max, =>
envpool-without-sticky-actions:
    evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    repeat_action_probability=env.repeat_action_probability, =>
envpool-without-time-limit: envs/test_envpool.py::test_the_row_after_an_end_is_a_dummy_and_is_marked
    max_episode_steps=env.time_limit, =>
# envs/callback.py
callback-hides-errors:
    envs/test_callback.py::test_the_engine_raises_the_error_until_it_is_restarted
    failures.append(error) => pass
# envs/catch.py
catch-resets-not-marked: envs/test_catch.py::test_rows_follow_the_contract
    reset=state.reset, => reset=state.reset & False,
catch-memory-moves-while-the-ball-shows:
    envs/test_catch.py::test_no_stack_that_an_action_is_chosen_from_shows_the_ball_to_be_remembered
    state.ball_row < rules.locked_steps => state.ball_row < 0
# envs/flicker.py
flicker-blanks-the-same-frames: envs/test_flicker.py::test_every_frame_is_drawn_by_itself
    return split[:, 0], => return keys,
flicker-by-the-place-in-a-group:
    envs/test_flicker.py::test_the_seed_alone_decides_not_devices_and_groups
    engine.env_ids.ravel(), => np.arange(engine.env_ids.size),
# evaluation/evaluate.py
evaluation-ends-with-a-life:
    evaluation/test_evaluate.py::test_the_first_whole_game_of_every_environment_counts
    ends = state.timestep.game_over & => ends = state.timestep.terminated &
evaluation-counts-later-games:
    evaluation/test_evaluate.py::test_the_first_whole_game_of_every_environment_counts
    state.timestep.game_over & ~games.finished => state.timestep.game_over
evaluation-counts-clipped-rewards:
    evaluation/test_evaluate.py::test_the_first_whole_game_of_every_environment_counts
    before.score + state.timestep.score => before.score + state.timestep.reward
evaluation-counts-resets:
    evaluation/test_evaluate.py::test_the_first_whole_game_of_every_environment_counts
    before.length + ~state.timestep.reset => before.length + 1
# evaluation/protocols.py
evaluation-noops-of-training:
    evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    "noop_max": PROTOCOLS[protocol].noop_max, =>
evaluation-limit-of-training:
    evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    "max_episode_steps": MOST_FRAMES // config.env.frame_skip, =>
evaluation-is-not-sticky: evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    PROTOCOLS[protocol].stickiness => 0.0
evaluation-clips-rewards: evaluation/test_protocols.py::test_settings_of_each_protocol_reach_envpool
    "reward_clip": False => "reward_clip": True
evaluation-fires-once:
    evaluation/test_protocols.py::test_fire_is_pressed_for_some_steps_after_each_reset
    state.override(action, engine.spec) => action
evaluation-fires-for-the-first-game-only:
    evaluation/test_protocols.py::test_fire_is_pressed_for_some_steps_after_each_reset
    jnp.where(timestep.reset, steps, jnp.maximum(state.steps_left - 1, 0)) =>
    jnp.maximum(state.steps_left - 1, 0)
# training/finish.py
evaluation-is-always-noop:
    evaluation/test_protocols.py::test_a_run_with_sticky_actions_ends_with_the_protocol_sticky
    protocol = evaluation_record.protocol_of(config) => protocol = "noop"
# training/member.py
best-of-first-games:
    program/test_episode_statistics.py::test_the_best_checkpoint_needs_more_than_the_first_games
    return games.return_mean if fair else None => return games.return_mean
# analysis/statistics.py
middle-half-is-wider: analysis/test_statistics.py::test_aggregates_are_those_of_rliable
    0.25, axis=-1 => 0.2, axis=-1
# networks/torsos.py
hidden-norm-of-the-first-stream:
    networks/test_networks.py::test_hidden_norm_gives_each_stream_numbers_of_mean_0_and_deviation_1
    name=f"HiddenNorm_{stream}")(x) => name=f"HiddenNorm_{stream}")(x) if stream == 0 else x
hidden-norm-beside-the-layers:
    networks/test_networks.py::test_layer_norm_includes_hidden_norm
    if config.hidden_norm and not config.layer_norm: => if config.hidden_norm:
bfloat16-not-in-convolutions:
    kernels/test_dense.py::test_every_layer_below_the_heads_multiplies_bfloat16
    form = Form(stride, padding, rectify=not config.layer_norm, bfloat16=half) =>
    form = Form(stride, padding, rectify=not config.layer_norm)
planes-ignored:
    envs/test_colors.py::test_every_agents_first_layer_has_a_channel_for_each_plane_of_each_frame
    x = planes_last(x, planes) => x = x
# envs/atari2600/native/engine/engine.h
engine-threads-on-one-core:
    envs/atari2600/test_engine.py::test_as_many_threads_as_cores_keep_to_one_each
    if (one_a_core) keep_to_core(threads_.back(), thread); =>
    if (one_a_core) keep_to_core(threads_.back(), 0);
# kernels/native/tiles.h
kernels-never-rectify:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    if (finish.rectify) x = rectified(x); => if (finish.rectify) x = x;
# kernels/native/convolution.h
kernels-bias-of-one-pixel:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    sums[n] += load(gradient + i + n * filters); => sums[n] += load(gradient + i);
kernels-one-line-of-weights:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    const Left left{seen + line * s.line(), => const Left left{seen + s.line(),
kernels-weights-not-turned:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    const int y = (taps - 1 - ty) * s.stride + py, => const int y = ty * s.stride + py,
kernels-tap-of-another-pixel:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    const int first = s.taps() - 1 - tap; => const int first = tap;
kernels-taps-overwritten:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    where + place : nullptr, add}; => where + place : nullptr, false};
kernels-first-tap-left-out:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    + phase < s.size ? 0 : 1; => < s.size ? 1 : 0;
kernels-taps-of-the-next-line:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    wide_pixel, (taps - count) * filters}; => wide_pixel, 0};
kernels-mean-added: kernels/test_convolution.py::test_gradients_of_networks_equal_those_of_products
    four_times(load(scale + pixel + i), kAll) - => four_times(load(scale + pixel + i), kAll) +
kernels-no-clip: kernels/test_convolution.py::test_gradients_of_networks_equal_those_of_products
    store(to + 4 * i, above > limit ? Lanes{} + limit : above); => store(to + 4 * i, above);
# kernels/native/pairs.h
kernels-pairs-turned:
    kernels/test_convolution.py::test_products_of_bfloat16_are_exact_but_for_their_factors
    store(pairs + i, paired(read(i, kLanes), second(i, kLanes))); =>
    store(pairs + i, paired(second(i, kLanes), read(i, kLanes)));
# kernels/native/factors.h
kernels-pairs-of-the-next-line:
    kernels/test_convolution.py::test_products_of_bfloat16_are_exact_but_for_their_factors
    border.line(s, image, y + s.stride), => border.line(s, image, y + 1),
kernels-border-in-the-image:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    image + (y - pixels) * count : nullptr, => image + y * count : nullptr,
kernels-border-not-rectified:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    least = rectify ? 0 : -__builtin_inff(); => least = -__builtin_inff();
kernels-last-row-paired:
    kernels/test_convolution.py::test_products_of_bfloat16_are_exact_but_for_their_factors
    row + 1 < rows ? x + (row + 1) * count : nullptr => x + row * count
# kernels/native/dense.h
kernels-dense-panel-of-other-lines:
    kernels/test_dense.py::test_a_product_and_its_gradients_equal_float64
    numbers_of(line + layer.outputs), => numbers_of(line + kPanel),
kernels-dense-not-turned: kernels/test_dense.py::test_a_product_and_its_gradients_equal_float64
    transpose(kPanel, depth, lines, depth, panel, kPanel); =>
    memcpy(panel, lines, sizeof(float) * depth * kPanel);
# networks/layers.py
dense-noise-of-bfloat16-heads: kernels/test_dense.py::test_heads_multiply_float32
    return multiplied(x, weights.astype(x.dtype), self.bfloat16) =>
    return multiplied(x, weights.astype(x.dtype), True)
# kernels/native/factors.h
kernels-gradient-through-rectifier:
    kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    return rectify ? where_positive(load(y + i), d) : d; => return d;
# kernels/native/layers.h
kernels-lost-part: kernels/test_convolution.py::test_a_layer_and_its_gradients_equal_xlas_in_float64
    for (int part = 1; part < parts; part++) => for (int part = 2; part < parts; part++)
# kernels/native/normalization.h
kernels-norm-moves-with-its-mean:
    kernels/test_normalization.py::test_rows_and_their_gradients_equal_float64
    inverse_ * (d - sum - x * product) => inverse_ * (d - x * product)
kernels-norm-gradient-through-rectifier:
    kernels/test_normalization.py::test_rows_and_their_gradients_equal_float64
    return layer_.rectify ? where_positive(output(i, score), d) : d; => return d;
kernels-norm-lost-part: kernels/test_normalization.py::test_rows_and_their_gradients_equal_float64
    for (int part = 1; part < parts; part++) => for (int part = 2; part < parts; part++)
# kernels/native/pooling.h
kernels-pool-last-of-equals: kernels/test_pooling.py::test_the_largest_pixel_has_the_gradient
    (largest < x) | => (largest <= x) |
# envs/atari2600/native/env/observation.h
eights-beyond-the-line:
    envs/atari2600/test_observation.py::test_every_way_to_average_equals_that_of_one_pixel
    begin : kScreenWidth - 16; => begin : kScreenWidth - 15;
# envs/atari2600/native/chips/tia/masks.h
mask-cut-at-the-edge: envs/atari2600/test_ale.py::test_games_equal_ale
    {{w0 | w2 >> 32 | w3 << 32, => {{w0,
# envs/atari2600/native/chips/tia/writes.h
hmove-asks-one-player: envs/atari2600/test_ale.py::test_games_equal_ale
    constexpr u64 kDigits = 0xF0F0F0F0F0; => constexpr u64 kDigits = 0xF0;
# agents/q_learning.py
munchausen-added-twice: agents/test_updates.py::test_munchausen_targets_are_the_target_networks
    if not soft.online => if True
munchausen-of-both-networks: agents/test_updates.py::test_munchausen_targets_are_the_target_networks
    if soft and soft.online: => if soft:
munchausen-along-quantiles:
    agents/test_qr_dqn.py::test_the_learning_pass_adds_to_every_number_of_a_rows_target
    added.reshape(-1, *quantiles) => added.reshape(*quantiles, -1)
munchausen-bonus-has-a-gradient:
    agents/test_updates.py::test_munchausen_targets_are_the_target_networks
    jax.lax.stop_gradient(setup.method.values(outputs)) => (setup.method.values(outputs))
quantiles-not-drawn-again: agents/test_iqn.py::test_an_update_of_btr_equals_float64
    parts = zip(jax.random.split(key, 3), => parts = zip([key] * 3,
quantiles-of-another-use: agents/test_iqn.py::test_each_use_draws_its_own_number_of_levels
    ("target", "acting", "online") => ("online", "acting", "target")
importance-always-to-one:
    agents/test_iqn.py::test_an_update_of_btr_fast_sets_priorities_and_keeps_the_importance
    return start + share * (end - start) => return start + share * (1 - start)
# networks/heads.py
iqn-levels-added: agents/test_iqn.py::test_the_network_equals_its_equations
    x = x[:, None] * embedding => x = x[:, None] + embedding
iqn-advantages-not-centered: agents/test_iqn.py::test_the_network_equals_its_equations
    value = stream(1, 1) + value - value.mean(axis=-1, keepdims=True) =>
    value = stream(1, 1) + value
iqn-streams-share-noise: agents/test_iqn.py::test_the_network_equals_its_equations
    dense(config, outputs, 1.0, number + 2, hidden, noise) =>
    dense(config, outputs, 1.0, 2, hidden, noise)
iqn-hidden-units-not-counted:
    agents/test_learner.py::test_a_network_of_quantiles_counts_filters_and_hidden_units
    return ("NoisyDense_0", "NoisyDense_2") if => return () if
# networks/torsos.py
spectral-norm-of-the-stem:
    networks/test_impala.py::test_the_kernels_of_residual_blocks_have_a_spectral_norm_of_one
    y = Conv(self.filters, 3, form, init)(x) =>
    y = Conv(self.filters, 3, form, init, self.config.spectral_norm)(x)
no-spectral-norm:
    networks/test_impala.py::test_the_kernels_of_residual_blocks_have_a_spectral_norm_of_one
    inner, init, self.config.spectral_norm)(x) => inner, init)(x)
impala-width-ignored: networks/test_impala.py::test_width_pooling_and_units_by_their_shapes
    ImpalaSection(config.width * filters, => ImpalaSection(filters,
impala-not-normalized:
    networks/test_impala.py::test_layer_norm_follows_the_first_convolution_of_each_section
    y = LayerNorm()(y) => pass
hadamax-factors-added: networks/test_hadamax.py::test_a_block_by_hand
    window_max_pool(factor() * factor(), => window_max_pool(factor() + factor(),
hadamax-one-factor-squared: networks/test_hadamax.py::test_a_block_by_hand
    window_max_pool(factor() * factor(), => window_max_pool(factor() ** 2,
hadamax-surplus-first: networks/test_hadamax.py::test_the_torso_equals_the_layers_of_flax
    y[:, first:, first:]) => y[:, : x.shape[1], : x.shape[2]])
hadamax-rectified: networks/test_hadamax.py::test_the_torso_equals_the_layers_of_flax
    return nn.gelu(normalized(config, x)) => return nn.relu(normalized(config, x))
hadamax-not-normalized: networks/test_hadamax.py::test_the_torso_equals_the_layers_of_flax
    return nn.gelu(normalized(config, x)) => return normalized(config, nn.gelu(x))
# config/convolutions.py
gamma-strides-swapped: networks/test_networks.py::test_gamma_equals_the_layers_of_flax
    *(Convolution(64, 3, 2), Convolution(64, 3)), => *(Convolution(64, 3), Convolution(64, 3, 2)),
# networks/layers.py
noise-without-signs: agents/test_iqn.py::test_the_network_equals_its_equations
    jnp.sign(sample) * jnp.sqrt(jnp.abs(sample)) => jnp.sqrt(jnp.abs(sample))
window-pool-last-left-out: networks/test_hadamax.py::test_pooling_by_hand
    around[axis] = (missing // 2, missing - missing // 2) => around[axis] = (missing, 0)
window-pool-of-zeros: networks/test_hadamax.py::test_pooling_by_hand
    constant_values=-jnp.inf) => constant_values=0)
simplices-of-the-wrong-axis: networks/test_hadamax.py::test_simplicial_embeddings_by_hand
    jax.nn.softmax(split / temperature, axis=-1) => jax.nn.softmax(split / temperature, axis=-2)
simplices-without-temperature: networks/test_hadamax.py::test_simplicial_embeddings_by_hand
    jax.nn.softmax(split / temperature, axis=-1) => jax.nn.softmax(split, axis=-1)
spectral-norm-without-gradient:
    networks/test_impala.py::test_the_largest_singular_value_and_its_gradient
    return jnp.sum(u[:, None] * matrix * v) => return jnp.sum(u[:, None] * fixed * v)
adaptive-pool-without-overlap: networks/test_impala.py::test_parts_of_adaptive_pooling_by_hand
    -(-(i + 1) * length // size)) for => (i + 1) * length // size) for
# ops/exploration.py
epsilon-not-geometric: ops/test_exploration.py::test_epsilon_falls_geometrically
    share = -jnp.expm1(-steps / => share = -jnp.expm1(-2 * steps /
# ops/munchausen.py
munchausen-no-clip: ops/test_munchausen.py::test_hand_worked_log_policy_and_bonus
    return scale * jnp.clip(chosen, clip, 0.0) => return scale * chosen
munchausen-no-entropy:
    ops/test_munchausen.py::test_the_soft_bootstrap_of_values_is_their_soft_maximum
    soft = x - scaled.reshape(*scaled.shape, *quantiles) => soft = x
# ops/histograms.py
hl-gauss-sigma-ignored: ops/test_histograms.py::test_hand_worked_gaussian
    clipped[:, None]) / deviation) => clipped[:, None]))
hl-gauss-tails-kept: ops/test_histograms.py::test_gaussian_equals_scipy
    return jnp.diff(below) / (below[:, -1:] - below[:, :1]) => return jnp.diff(below)
hl-gauss-no-clip: ops/test_histograms.py::test_targets_beyond_the_edges_are_taken_at_them
    clipped = jnp.clip(target, edges[0], edges[-1]) => clipped = target
hl-gauss-middles-at-edges: ops/test_histograms.py::test_the_mean_of_a_gaussian_is_the_target
    return (edges[:-1] + edges[1:]) / 2 => return edges[:-1]
two-hot-turned: ops/test_histograms.py::test_hand_worked_two_hot
    jnp.ones(1), support)) => jnp.ones(1), support[::-1]))
hl-gauss-loss-turned: ops/test_histograms.py::test_cross_entropy_by_hand_and_by_optax
    return -jnp.sum(target * jax.nn.log_softmax(logits), axis=-1) =>
    return -jnp.sum(jax.nn.softmax(logits) * jnp.log(target + 1e-9), axis=-1)
# ops/quantiles.py
quantile-levels-turned: ops/test_quantiles.py::test_hand_worked_loss
    weight = jnp.abs(levels[..., None] - (delta < 0)) =>
    weight = jnp.abs(levels[..., None] - (delta > 0))
quantile-priority-of-the-loss: agents/test_iqn.py::test_hand_worked_target_and_loss
    jnp.mean(jnp.abs(delta), axis=(1, 2)) => huber_loss(delta, levels)
quantile-edges: ops/test_quantiles.py::test_levels_are_the_middles_of_equal_parts
    + 0.5) / count => + 1.0) / count
# envs/atari2600/native/console/game.h
variant-other-switch: envs/atari2600/test_variants.py::test_a_variant_equals_ales
    (player.variant.difficulty << 6) => (player.variant.difficulty << 7)
variant-options-off: envs/atari2600/test_variants.py::test_a_variant_equals_ales
    const bool wanted = mode & 1; => const bool wanted = false;
# envs/atari2600/native/games/games.h
variant-few-rows: envs/atari2600/test_variants.py::test_a_variant_equals_ales
    .cut_short = 32 => .cut_short = 8
# envs/atari2600/native/env/environment.h
variant-not-trained: envs/atari2600/test_engine.py::test_games_of_other_modes_are_envpools
    return {mode, difficulty}; => return {};
# envs/atari2600/native/vector/engine.h
titles-in-turns: envs/atari2600/test_variants.py::test_several_games_play_as_each_alone_does
    env / (envs_.size() / titles_.size()) => env % titles_.size()
# envs/atari2600/native/vector/snapshot.h
snapshot-of-any-title:
    envs/atari2600/test_variants.py::test_several_games_are_saved_and_only_forked_within_their_own
    if (header.cartridge != cartridge.digest) return Refusal::kCartridge; =>
"""


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and the test that fails with it."""

    name: str
    file: str  # in jaxrl/
    test: str  # in tests/, as pytest names it
    original: str
    changed: str


def mutants() -> list[Mutant]:
    """Returns the table's mutants."""
    entries: list[Mutant] = []
    file = ""
    for entry in re.split(r"\n(?=\S)", TABLE.strip()):
        if entry.startswith("# "):
            file = entry.removeprefix("# ")
            continue
        match = re.fullmatch(r"(\S+): (\S+) (.+) =>(.*)", " ".join(entry.split()))
        assert match, entry
        name, test, original, changed = (part.strip() for part in match.groups())
        entries.append(Mutant(name, file, test, original, changed))
    return entries


def left_out(folder: str, names: list[str]) -> set[str]:
    """Returns what the copy of a folder leaves out; jaxrl/runs and tests/runs are code."""
    ignored = shutil.ignore_patterns(*LEFT_OUT)(folder, names)
    return ignored if Path(folder) == ROOT else ignored - {"runs"}


def copy_tree(to: Path) -> None:
    """Copies the checkout, with what earlier tests have compiled."""
    shutil.copytree(ROOT, to, ignore=left_out)
    if (ROOT / CACHE).is_dir():
        shutil.copytree(ROOT / CACHE, to / CACHE)


def run(copy: Path, *arguments: str) -> tuple[int, str]:
    """Runs Python on the copy; returns the exit status, -1 past the deadline, and the output."""
    # Without bytecode: a mutant may have the size and the second of the file before it.
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    try:
        ended = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=DEADLINE
        )
    except subprocess.TimeoutExpired:
        return -1, ""
    return ended.returncode, ended.stdout + ended.stderr


def pytest(copy: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Runs tests until the first that fails."""
    ids = [f"tests/{test}" for test in dict.fromkeys(tests)]
    return run(copy, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *ids)


def attempt(mutant: Mutant, copy: Path) -> str:
    """Applies a mutant, runs its test and takes it back: killed, SURVIVED, STALE or BROKEN."""
    path = copy / "jaxrl" / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.original) != 1:
        return f"STALE: its text occurs {text.count(mutant.original)} times in {mutant.file}"
    path.write_text(text.replace(mutant.original, mutant.changed), encoding="utf-8")
    start = time.monotonic()
    status, output = pytest(copy, [mutant.test])
    seconds = time.monotonic() - start
    path.write_text(text, encoding="utf-8")
    # 1: a test failed. Other statuses say that none ran.
    verdict = {0: "SURVIVED", 1: "killed", -1: "killed"}.get(status, f"BROKEN, status {status}")
    reason = re.search(r"^\S+:\d+: (.*)$", output, re.MULTILINE) if status == 1 else None
    return f"{verdict} in {seconds:.0f} s" + (f": {reason.group(1)[:100]}" if reason else "")


def main() -> int:
    """Tries the mutants that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", help="parts of names, files or tests; without any all")
    parser.add_argument("--list", action="store_true", help="show them and end")
    options = parser.parse_args()

    def is_meant(mutant: Mutant) -> bool:
        texts = mutant.name, mutant.file, mutant.test
        return not options.parts or any(part in text for part in options.parts for text in texts)

    chosen = [mutant for mutant in mutants() if is_meant(mutant)]
    if options.list or not chosen:
        print("\n".join(f"{m.name:36} {m.file:18} {m.test}" for m in chosen) or "no such mutant")
        return 0 if chosen else 1
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "jaxrl"
        copy_tree(copy)
        _, imported = run(copy, "-c", "import jaxrl; print(jaxrl.__file__)")
        assert imported.startswith(str(copy)), f"the tests would import {imported}"
        print(f"{len(chosen)} mutants; first their tests without them ...", flush=True)
        status, output = pytest(copy, [mutant.test for mutant in chosen])
        if status:
            print(f"{output[-2000:]}\nthese tests must pass before anything is broken")
            return 1
        left = []
        for mutant in chosen:
            result = attempt(mutant, copy)
            print(f"{mutant.name:36} {result}", flush=True)
            if not result.startswith("killed"):
                left.append(mutant.name)
    print(f"{len(chosen) - len(left)} of {len(chosen)} killed")
    if left:
        print(f"not killed: {', '.join(left)}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
