"""The plan of a run on the devices of this machine, before anything is compiled."""

from jax.sharding import Mesh

from jaxrl.config.plan import Plan, resolve, with_learners
from jaxrl.config.schema import Config
from jaxrl.envs import check_engine, check_starts_many, choose_engine
from jaxrl.networks.torsos import check_torso
from jaxrl.runs import population
from jaxrl.runtime import processes
from jaxrl.runtime.mesh import make_mesh
from jaxrl.training import memory_budget


def plan_training(config: Config, members: int = 1) -> tuple[Plan, Mesh]:
    """Returns the plan of a validated configuration, and the devices to train on.

    `members` runs of different seeds train together, each of the same sizes. The emulator is built
    if it has to be. Raises `UserError` where the run cannot train here.
    """
    env = choose_engine(config.game, config.env)
    check_engine(config.game, env)
    check_torso(config.network, (*env.frame_shape, env.stack), env.planes)
    if members > 1:
        check_starts_many(env.engine)
        population.check_processes(processes.count())
    mesh = make_mesh(config.parallel.num_devices)
    plan = resolve(config, mesh.size, env)
    memory_budget.check_memory(plan, mesh, members)
    # The number of learners that was open stays when the run is resumed on other devices.
    return plan.of(with_learners(config, mesh.size)), mesh
