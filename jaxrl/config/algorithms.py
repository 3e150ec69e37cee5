"""The settings of every learning algorithm: what `[agent]` of a configuration holds."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class A2CConfig:
    """Synchronous advantage actor-critic (A3C, Mnih 2016; PAAC, Clemente 2017)."""

    rollout_length: int = 5
    """agent steps of every environment between two updates"""
    gamma: float = 0.99
    """discount per agent step"""
    entropy_coef: float = 0.01
    """weight of the entropy bonus"""
    value_coef: float = 0.25
    """weight of the mean squared error of the values"""
    loss_scale: float = 1.0
    """factor on the whole loss (PAAC: 5); matters to eps and to max_grad_norm"""
    log_epsilon: float = 0.0
    """GA3C's log(pi + epsilon); 0 is the plain logarithm"""
    micro_batch: int = 0
    """rows per gradient pass (all passes together make one gradient); 0 lets the platform choose"""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimization (Schulman 2017)."""

    rollout_length: int = 128
    """agent steps of every environment between two updates"""
    gamma: float = 0.99
    """discount per agent step"""
    gae_lambda: float = 0.95
    """weight of longer returns in the advantages: 0 one step, 1 the whole rollout"""
    epochs: int = 4
    """passes over each rollout"""
    num_minibatches: int = 4
    """gradient steps per epoch; each takes as many steps of every environment"""
    clip: float = 0.1
    """how far from 1 the ratio of new to old probability still has a gradient"""
    clip_value: bool = False
    """clip the change of the values likewise"""
    entropy_coef: float = 0.01
    """weight of the entropy bonus"""
    value_coef: float = 0.5
    """weight of half the mean squared error of the values"""
    normalize_advantages: bool = True
    """to mean 0 and deviation 1 in each minibatch, over all devices"""
    normalize_values: bool = False
    """the network predicts returns in running standard deviations from their running mean"""
    kl_target: float = 0.01
    """nats; the adaptive learning rate grows where the mean divergence of an epoch's minibatches is
    below half of it, and shrinks where it is above twice"""
    micro_batch: int = 0
    """rows per gradient pass (all passes together make one gradient); 0 lets the platform choose"""


@dataclass(frozen=True)
class VTraceConfig:
    """Actor-critic with V-trace (IMPALA, Espeholt 2018; CuLE, Dalton 2019)."""

    rollout_length: int = 1
    """agent steps of every environment between two updates"""
    window: int = 20
    """newest agent steps of an environment that a gradient step learns from"""
    num_minibatches: int = 20
    """parts of the environments, which take turns: one gradient step learns from one of them"""
    updates_per_rollout: int = 1
    """gradient steps between two rollouts"""
    gamma: float = 0.99
    """discount per agent step"""
    clip_rho: float = 1.0
    """upper limit of the ratio of policies in the temporal differences"""
    clip_c: float = 1.0
    """upper limit of the ratio of policies in the traces"""
    vtrace_lambda: float = 1.0
    """factor of the traces; less than 1 trusts the values more, and gives less noise"""
    entropy_coef: float = 0.01
    """weight of the entropy bonus at the start"""
    entropy_schedule: Literal["constant", "linear"] = "constant"
    """constant; linear, to 0 at total_steps, so that the policy settles"""
    value_coef: float = 0.5
    """weight of the mean squared error of the values"""
    micro_batch: int = 0
    """windows per gradient pass (all passes together make one gradient); 0 lets the platform
    choose"""


@dataclass(frozen=True)
class ValueConfig:
    """What the value-based algorithms share: how they explore."""

    gamma: float = 0.99
    """discount per agent step"""
    epsilon_start: float = 1.0
    """probability of a random action at the first step"""
    epsilon_end: float = 0.01
    """probability of a random action after epsilon_decay_steps"""
    epsilon_decay_steps: int = 1_000_000
    """agent steps over which epsilon falls linearly"""
    epsilon_spread: bool = False
    """epsilon ends at 0.1, 0.01 and 0.5 in four, three and three tenths of each device's
    environments (Mnih 2016), instead of at epsilon_end in all"""
    evaluation_epsilon: float = 0.001
    """probability of a random action in `jaxrl evaluate` and `jaxrl play`"""
    micro_batch: int = 0
    """rows per gradient pass (all passes together make one gradient); 0 lets the platform choose"""


@dataclass(frozen=True)
class ReplayConfig(ValueConfig):
    """What the algorithms with a replay share; scaled up as Stooke & Abbeel 2018 do."""

    rollout_length: int = 4
    """agent steps of every environment between two updates"""
    n_step: int = 1
    """steps of reward before the bootstrap"""
    double_q: bool = False
    """the online network chooses the bootstrap's action, the target network values it"""
    batch_size: int = 32
    """transitions of one gradient step, over all devices"""
    training_intensity: float = 8.0
    """transitions trained on per transition played (DQN: 32 every 4 steps)"""
    replay_capacity: int = 1_000_000
    """transitions kept, over all devices; each takes 7 KB"""
    learning_starts: int = 80_000
    """agent steps before the first gradient step"""
    target_update_interval: int = 10_000
    """agent steps between two copies into the target network"""
    priority_exponent: float = 0.0
    """transitions are drawn as their last error to this power (Schaul 2016's alpha); 0 draws all
    alike"""
    importance_exponent: float = 0.4
    """how far weights make up for that, at the start (beta); linearly to 1 at total_steps"""


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """Deep Q-network (Mnih 2015); double (van Hasselt 2016) and prioritized (Schaul 2016)."""


@dataclass(frozen=True)
class C51Config(ReplayConfig):
    """Categorical DQN (Bellemare 2017); with all of its options Rainbow (Hessel 2018)."""

    num_atoms: int = 51
    """atoms of the return's distribution"""
    v_min: float = -10.0
    """return at the lowest atom"""
    v_max: float = 10.0
    """return at the highest atom"""


@dataclass(frozen=True)
class NStepQConfig(ValueConfig):
    """Asynchronous one-step Q, one-step Sarsa and n-step Q (Mnih 2016), made synchronous."""

    rollout_length: int = 5
    """agent steps of every environment between two updates"""
    target: Literal["n_step", "one_step", "sarsa"] = "n_step"
    """n_step: rewards to the end of the rollout, then the best action's value; one_step: one
    reward, then that; sarsa: one reward, then the value of the action that was taken"""
    target_update_interval: int = 10_000
    """agent steps between two copies into the target network"""


@dataclass(frozen=True)
class PQNConfig(ValueConfig):
    """Parallelised Q-network (Gallici 2025): lambda-returns, no replay, no target network."""

    rollout_length: int = 32
    """agent steps of every environment between two updates"""
    q_lambda: float = 0.65
    """weight of longer returns in the targets: 0 one step, 1 the whole rollout"""
    epochs: int = 2
    """passes over each rollout"""
    num_minibatches: int = 32
    """gradient steps per epoch; each takes as many steps of every environment"""


AgentConfig = (
    A2CConfig | PPOConfig | VTraceConfig | DQNConfig | C51Config | NStepQConfig | PQNConfig
)
ALGORITHMS: dict[str, type[AgentConfig]] = {
    "a2c": A2CConfig,
    "ppo": PPOConfig,
    "vtrace": VTraceConfig,
    "dqn": DQNConfig,
    "c51": C51Config,
    "nstep_q": NStepQConfig,
    "pqn": PQNConfig,
}
