"""A2C (Mnih 2016) written by hand in JAX, on the environments of jaxrl: one compiled update.

python docs/examples/a2c_by_hand.py --game catch                       # learned in a minute
python docs/examples/a2c_by_hand.py --game pong --updates 20_000       # any Atari game
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import tyro
from flax import linen as nn

import jaxrl
from jaxrl.types import TimeStep

NUM_ENVS, LENGTH, DISCOUNT = 32, 16, 0.99
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))


class Network(nn.Module):
    """Logits and value of a frame, at a fourth of its height and width."""

    num_actions: int

    @nn.compact
    def __call__(self, frame: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns f32[B, A] and f32[B] of frames u8[B, H, W]."""
        height, width = frame.shape[1] // 4, frame.shape[2] // 4
        blocks = frame[:, : 4 * height, : 4 * width].reshape(-1, height, 4, width, 4)
        x = blocks.mean((2, 4), jnp.float32).reshape(len(frame), -1) / 255
        x = nn.relu(nn.Dense(256)(x))
        return nn.Dense(self.num_actions)(x), nn.Dense(1)(x)[:, 0]


def returns_of(steps: TimeStep, next_values: jax.Array) -> jax.Array:
    """Returns G_t = r_t + γ G_{t+1}, and after a time limit r_t + γ v(s_{t+1}): f32[T, E]."""

    def back(following: jax.Array, row: tuple[TimeStep, jax.Array]) -> tuple[jax.Array, jax.Array]:
        step, next_value = row
        following = jnp.where(step.truncated, next_value, following)
        returned = step.reward + DISCOUNT * jnp.where(step.terminated, 0, following)
        return returned, returned

    return jax.lax.scan(back, next_values[-1], (steps, next_values), reverse=True)[1]


def main(game: str = "catch", updates: int = 1000, seed: int = 0) -> float:
    """Trains; returns the mean score of a game over the last tenth of the updates."""
    engine = jaxrl.make_engine(game, NUM_ENVS)
    network = Network(engine.spec.num_actions)

    def play(carry: Any, key: jax.Array) -> Any:
        params, env_state, step = carry
        action = jax.random.categorical(key, network.apply(params, step.frame)[0])
        env_state, following = engine.recv(engine.send(env_state, action))
        return (params, env_state, following), (step.frame, action, following)

    def loss(params: Any, frames: jax.Array, actions: jax.Array, steps: TimeStep) -> jax.Array:
        logits, values = jax.vmap(network.apply, (None, 0))(params, frames)
        next_values = jax.vmap(network.apply, (None, 0))(params, steps.frame)[1]
        returns = jax.lax.stop_gradient(returns_of(steps, next_values))
        log_probs = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_probs, actions[..., None], -1)[..., 0]
        entropy = -(jnp.exp(log_probs) * log_probs).sum(-1)
        advantages = returns - jax.lax.stop_gradient(values)
        losses = -chosen * advantages + 0.5 * (returns - values) ** 2 - 0.01 * entropy
        return losses.mean(where=~steps.reset)  # the action before a new game was ignored

    @jax.jit
    def update(params: Any, opt_state: Any, env_state: Any, step: TimeStep, key: jax.Array) -> Any:
        keys = jax.random.split(key, LENGTH)
        (_, env_state, step), rows = jax.lax.scan(play, (params, env_state, step), keys)
        changes, opt_state = OPTIMIZER.update(jax.grad(loss)(params, *rows), opt_state)
        counts = rows[2].score.sum(), rows[2].game_over.sum()
        return (optax.apply_updates(params, changes), opt_state, env_state, step), counts

    key = jax.random.key(seed)
    env_state, step = engine.init(seed)
    params = network.init(key, step.frame)
    state, counts = (params, OPTIMIZER.init(params), env_state, step), []
    for number in range(updates):
        state, sums = update(*state, jax.random.fold_in(key, number))
        counts.append(sums)
    score, games = jnp.array(counts[-max(1, updates // 10) :]).sum(0)
    mean = float(score / games)  # waits for the last update: an engine is closed after its programs
    engine.close()
    print(f"{game}: mean score of a game {mean:.2f}")
    return mean


if __name__ == "__main__":
    tyro.cli(main)
