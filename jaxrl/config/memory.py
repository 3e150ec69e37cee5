"""The bytes of an agent's memory, from the configuration alone: a replay holds each frame once."""

from jaxrl.config.schema import Config

BESIDE = 8  # bytes of a transition beside its frame
RECALL = 9  # further ones of an agent that remembers: the last action, the last reward, a new game
STATE_NUMBER = 4  # bytes of a number of its state
USABLE = 0.9  # share of the free memory; the rest is for networks and batches


def transition_bytes(frame_shape: tuple[int, int], state: float = 0.0) -> float:
    """Returns the bytes of a transition with `state` numbers of the recurrent state, if any."""
    recall = RECALL + STATE_NUMBER * state if state else 0
    return frame_shape[0] * frame_shape[1] + BESIDE + recall


def bytes_per_transition(config: Config) -> float:
    """Returns the bytes of a transition in the memory that a configuration describes."""
    state = config.network.core_size * config.agent.states_per_transition
    return transition_bytes(config.env.frame_shape, state)


def memory_bytes(config: Config) -> float:
    """Returns the bytes of the memory over all devices; 0 without one."""
    return config.agent.remembered(config.num_envs) * bytes_per_transition(config)


def saves_memory(config: Config) -> bool:
    """Returns whether checkpoints hold the memory, which then is in host memory, too."""
    return config.agent.remembers_past and config.checkpoint.memory
