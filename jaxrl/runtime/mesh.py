"""The mesh, the layout of states on it, and the only shard_map.

The per-device program is mapped over the 1-D mesh, whether it has one device or many; `jax.pmap` is
built on the same `jax.shard_map`. Parameters are replicated, environments are sharded.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxrl.errors import UserError
from jaxrl.types import AXIS, PyTree

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Typed Any because a tree of specs has the structure of the state that it describes.
REPLICATED: Any = PartitionSpec()
SHARDED: Any = PartitionSpec(AXIS)  # rows of all devices along the first axis


def simulate_cpu_devices(count: int) -> None:
    """Splits the CPU into at least `count` devices, unless JAX has opened its devices before."""
    if jax.config.values["jax_num_cpu_devices"] < count:
        with contextlib.suppress(RuntimeError):  # `make_mesh` counts those that there are
            jax.config.update("jax_num_cpu_devices", count)


def make_mesh(num_devices: int) -> Mesh:
    """Returns the 1-D mesh of the first devices of every process.

    0 takes every accelerator, or one CPU per process. Raises `UserError` if there are too few
    devices, or they do not divide among the processes.
    """
    devices, processes = jax.devices(), jax.process_count()
    by_process = [[d for d in devices if d.process_index == p] for p in range(processes)]
    most = len(devices)
    if len(set(map(len, by_process))) > 1:
        numbers = ", ".join(str(len(local)) for local in by_process)
        raise UserError(
            f"processes have different numbers of devices: {numbers}; give each the same number"
        )
    if num_devices > most:
        platform = devices[0].platform
        late = ": JAX opened them before more could be simulated; begin a new process"
        raise UserError(
            f"num_devices = {num_devices}: there are {most} {platform} device{'s' * (most > 1)}"
            f"{late * (platform == 'cpu' and processes == 1)}"
        )
    if num_devices % processes:
        below = num_devices // processes * processes
        nearest = f"{below} or {below + processes}" if below else str(processes)
        raise UserError(
            f"num_devices = {num_devices} does not divide among {processes} processes: "
            f"take {nearest}"
        )
    on_cpu = devices[0].platform == "cpu"
    count = (num_devices or (processes if on_cpu else most)) // processes
    # Process by process, because an engine takes its pool by the device's place in the mesh;
    # `jax.make_mesh` would order them by the network between them.
    chosen = np.array([device for local in by_process for device in local[:count]])
    return Mesh(chosen, (AXIS,), axis_types=(AxisType.Auto,))


def compiler_options(mesh: Mesh) -> dict[str, bool] | None:
    """Returns XLA's options for a program that calls emulators; None if it needs none.

    Processes with GPUs divide the tuning of kernels: each waits up to 24 hours for the results that
    the others store under the fingerprint of the whole module (`GetKvStoreKey` in XLA's
    xla/backends/autotuner/autotuner.cc). The module holds the addresses of the emulators, so its
    fingerprint differs between processes and none would ever compile. So each tunes for itself.
    """
    devices = list(mesh.devices.flat)
    together = len({device.process_index for device in devices}) > 1
    on_gpu = any(device.platform == "gpu" for device in devices)
    return {"xla_gpu_shard_autotuning": False} if together and on_gpu else None


def num_local_devices(mesh: Mesh) -> int:
    """Returns how many devices of the mesh belong to this process."""
    return len(mesh.local_devices)


def free_host_memory() -> int:
    """Returns the bytes of host memory that this process may still take.

    The least of the machine's, the container's and the address space's limit.
    """
    free = psutil.virtual_memory().available
    if resource is not None:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]  # as `ulimit -v` sets it
        if limit != resource.RLIM_INFINITY:
            free = min(free, limit - psutil.Process().memory_info().vms)
    group = Path("/sys/fs/cgroup")
    try:
        limit = int((group / "memory.max").read_text())
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no such file, or no limit ("max")
        return free
    return min(free, limit - used)


def free_device_memory(mesh: Mesh) -> int | None:
    """Returns the free bytes of each accelerator; None if the platform does not report them."""
    statistics = mesh.local_devices[0].memory_stats() or {}
    if "bytes_limit" not in statistics:
        return None
    return statistics["bytes_limit"] - statistics["bytes_in_use"]


def put(mesh: Mesh, tree: PyTree, spec: PartitionSpec) -> PyTree:
    """Lays this process's rows of a tree (or all of a replicated one) on the mesh."""
    sharding = NamedSharding(mesh, spec)

    def place(x: Any) -> jax.Array:
        if jax.process_count() == 1:
            return jax.device_put(x, sharding)
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(place(jax.random.key_data(x)))
        return jax.make_array_from_process_local_data(sharding, np.asarray(x))

    return jax.tree.map(place, tree)


def put_rows(mesh: Mesh, tree: PyTree, spec: PartitionSpec) -> PyTree:
    """Lays a tree of NumPy arrays on the mesh, of which every process has all rows."""
    sharding = NamedSharding(mesh, spec)

    def place(x: np.ndarray) -> jax.Array:
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    return jax.tree.map(place, tree)


def local_rows(x: jax.Array) -> np.ndarray:
    """Returns the rows of this process's devices, of an array sharded along its first axis."""
    shards = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return np.concatenate([np.asarray(shard.data) for shard in shards])


def fetch(tree: PyTree) -> PyTree:
    """Returns the arrays of all devices as NumPy arrays; all processes must call it."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def map_over_devices(
    program: Callable[..., Any], mesh: Mesh, in_specs: PyTree, out_specs: PyTree
) -> Callable[..., Any]:
    """Maps the per-device program over the mesh.

    Replication is not checked: with the check, a mean of the gradient over devices would come out
    as their sum (pinned by a test).
    """
    return jax.shard_map(
        program, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
