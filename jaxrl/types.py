"""Every core type, with the shape beside each field.

E = environments on this device, T = rollout length, A = actions. All rows of a field belong to
one device; `jaxrl.program.program` maps over devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # commands that compute nothing import this module too
    import chex
    import jax
    import numpy as np

PyTree = Any
AXIS = "device"  # the one axis of the mesh
FRAME_SHAPE = (84, 84)  # pixels, height x width, if nothing else is configured (Mnih 2013)
STACK_SIZE = 4  # frames an agent sees at once, if nothing else is configured


class EnvSpec(NamedTuple):
    """The game of an engine, its actions and its frames."""

    num_envs: int  # E, environments on each device
    num_actions: int  # A
    action_meanings: tuple[str, ...]  # [A], names as the Arcade Learning Environment has them
    game: str
    frame_shape: tuple[int, int] = FRAME_SHAPE  # H, W; 84, 84 in the shapes of all other comments
    stack_size: int = STACK_SIZE  # frames that an agent sees at once; 4 in those comments
    # Planes of a frame: three are red, green and blue, each a third of its height, from the top.
    planes: int = 1


class TimeStep(NamedTuple):
    """One step of every environment."""

    frame: jax.Array  # u8[E, 84, 84], newest frame; stacking is done by the rollout
    reward: jax.Array  # f32[E], for the learner (clipped if so configured)
    score: jax.Array  # f32[E], unclipped
    terminated: jax.Array  # b[E], a terminal of the learner's MDP (life lost, when so configured)
    truncated: jax.Array  # b[E], time limit: bootstrap from the frame that came with it
    # b[E], the game ended with this row, by the emulator or the time limit. On a reset row it ended
    # during the reset: this row begins another game, and the score ends with the row before.
    game_over: jax.Array
    reset: jax.Array  # b[E], this row is an auto-reset: its action was ignored


class RecurrentObservation(NamedTuple):
    """The observation of an agent that remembers: one step of it, [E], or a sequence of steps."""

    stack: Any  # u8[E, 84, 84, 4], oldest frame first
    core: Any  # f32[E, S], state of the recurrent core before this step; of a sequence the first's
    last_action: jax.Array  # i32[E], -1 after a reset, which ignored it
    last_reward: jax.Array  # f32[E], the learner's; 0 where a game begins
    fresh: jax.Array  # b[E], the core begins here: its state is zero


class Trajectory(NamedTuple):
    """T steps of every environment on this device."""

    # u8[T+1, E, 84, 84, 4], oldest frame first; of an agent that remembers a RecurrentObservation
    observation: Any
    action: jax.Array  # i32[T, E]
    reward: jax.Array  # f32[T, E]
    discount: jax.Array  # f32[T, E], 0 on termination, else 1
    valid: jax.Array  # b[T, E], False where a reset ignored the action
    extras: PyTree  # [T, E], returned by `Agent.act` with the action
    score: Any = ()  # f32[T, E], the rewards before they are clipped; () where a memory has none


class ActorState(NamedTuple):
    """The state that acting reads."""

    params: PyTree  # network parameters
    statistics: PyTree  # observation statistics, () without normalization
    updates: jax.Array  # i32[], updates done; schedules of exploration read it


class AgentState(NamedTuple):
    """Everything an agent learns; `actor` and `train_state` are the same on every device."""

    actor: ActorState
    # state of the gradient steps beside the parameters: optax's opt_state, target_params, an
    # adaptive learning rate
    train_state: PyTree
    memory: PyTree  # sharded by device along the first axis (replay, windows); () if none


class Prediction(NamedTuple):
    """The policy that an agent plays in evaluation, and the returns that it expects.

    Of a noisy network all are those of the mean weights, while `Agent.act` draws weights for every
    observation, in evaluation too. N = atoms of a return's distribution; 0 without one.
    """

    probabilities: jax.Array  # f32[B, A], of the actions, with evaluation's random ones
    value: jax.Array  # f32[B], expected return; of value-based agents the best action's
    distributions: jax.Array  # f32[B, A, N], of each action's return, on the atoms of `support`
    support: jax.Array  # f32[N], returns


class Choice(NamedTuple):
    """The actions that an agent chose, and all that it hands on with them."""

    action: jax.Array  # i32[E]
    extras: PyTree = ()  # [E], values that the update wants
    core: PyTree = ()  # f32[E, S], state of the recurrent core after this step; () without one


class Core(NamedTuple):
    """The recurrent state that an agent carries from step to step of a game."""

    size: int  # S, numbers of one environment's state
    forgets_lives: bool  # the state is zeroed where a life is lost, too


def _keep(value: Any) -> Any:
    return value


class Mean(NamedTuple):
    """A metric that only some updates have, as a sum over those."""

    total: jax.Array  # f32[]
    number: jax.Array  # f32[], of terms; 0 if there are none


class Count(NamedTuple):
    """A metric that is summed over the updates of an interval, not averaged."""

    total: jax.Array  # f32[]


Metrics = dict[str, Any]  # f32[], Mean or Count


class Agent(NamedTuple):
    """A learning algorithm as a record of pure functions."""

    init: Callable[[chex.PRNGKey], AgentState]  # with the memory of one device
    # act(actor, observation u8[E, 84, 84, 4], key[E]) -> Choice, or its first fields as a tuple
    act: Callable[[ActorState, Any, chex.PRNGKey], tuple[Any, ...]]
    # update(state, trajectory, key) -> (state, Metrics); inside the mesh
    update: Callable[[AgentState, Trajectory, chex.PRNGKey], tuple[AgentState, Metrics]]
    # predict(actor, observation u8[B, 84, 84, 4]) -> Prediction, which draws no random number
    predict: Callable[[ActorState, Any], Prediction]
    rollout_length: int  # T
    # interrupt(memory) -> memory: notes that the next games do not continue the remembered ones
    interrupt: Callable[[PyTree], PyTree] = _keep
    # skip(state) -> state: the effect of a skipped update, such as the copy of a target network
    skip: Callable[[AgentState], AgentState] = _keep
    # core of an agent that remembers: every observation is then a RecurrentObservation
    core: Core | None = None


class EnvEngine(NamedTuple):
    """A batch of environments on every local device; `send` and `recv` run inside the mesh.

    Between `send` and `recv` the environments step on other threads.
    """

    spec: EnvSpec
    # init(seed) -> (env state, first timestep), rows of all local devices, made on the host. An
    # engine that several runs share takes the seed of each. Programs compiled before a second init
    # would step games that are gone.
    init: Callable[..., tuple[PyTree, TimeStep]]
    send: Callable[[PyTree, jax.Array], PyTree]  # starts a step and returns at once
    recv: Callable[[PyTree], tuple[PyTree, TimeStep]]  # waits for it
    close: Callable[[], None]
    state_format: str  # format of saved games, with a version; "" if they cannot be saved
    env_ids: np.ndarray  # i64[local devices, E], numbers of the environments among all
    render: Callable[[], Any] | None  # u8[H, W, 3] of environment 0; only with nothing in flight
    check: Callable[[], None]  # raises EngineError if a call since `init` failed; on the host
    # Where the engine holds its games itself, on the host: save() -> rows of this process's games,
    # which load(rows) lets go on. Both wait for a step under way; the rows hold its answers too.
    # None if the env state is the whole state of the games.
    save: Callable[[], PyTree] | None = None
    load: Callable[[PyTree], None] | None = None
    # Where the env state is the games in another form than a checkpoint's, on the host and for this
    # process's games: pack(env state) -> rows, and unpack(rows) -> env state.
    pack: Callable[[PyTree], PyTree] | None = None
    unpack: Callable[[PyTree], PyTree] | None = None
    name: str = ""  # as env.engine has it; `envs.make_engine` fills it in


class LoopState(NamedTuple):
    """The complete state of training."""

    agent: AgentState
    games: PyTree  # a RolloutState per group; only the overlapped order has sent actions
    key: jax.Array  # key[], for the next updates
    metrics: Metrics  # sums over the updates since the last line of the log


WINDOW = 100  # games in the statistics
