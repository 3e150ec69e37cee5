"""Memory checks for the replays of configurations, for `jaxrl doctor` and the suite."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrl.config import toml
from jaxrl.config.memory import USABLE, bytes_per_transition, memory_bytes, saves_memory
from jaxrl.config.schema import Config
from jaxrl.errors import UserError
from jaxrl.experiments.doctor.host_checks import Check
from jaxrl.formatting import listed

NAME = "replays"
MOST = 4  # configurations that a line names
ROUND = 10_000  # transitions, to which a capacity that fits is rounded


class Room(NamedTuple):
    """The free memory of a machine, in bytes."""

    device: float | None  # of each accelerator, for JAX; None where the host holds replays
    host: float
    num_devices: int


class Need(NamedTuple):
    """Memory that the replay of a configuration takes on the device or on the host."""

    name: str  # the configuration's
    need: float  # bytes
    free: float  # bytes
    where: str  # "on the device", for messages
    capacity: int  # transitions that would fit
    unsaved: float  # bytes without those for checkpoints

    @property
    def fits(self) -> bool:
        """Returns whether there is room for it, and some for networks and batches."""
        return self.need <= USABLE * self.free


def room(machine: Mapping[str, Any]) -> Room | None:
    """Returns the free memory of a machine as `Machine` has it; None where it is unknown."""
    host, device = machine.get("host_memory_free_gb"), machine.get("device_memory_gb")
    if host is None:
        return None
    on_device = None if machine.get("platform") == "cpu" or device is None else 1e9 * device
    return Room(on_device, 1e9 * host, machine.get("num_devices") or 1)


def recipes() -> dict[str, Config]:
    """Returns the configurations with a replay by stem; files that are none are left out."""
    configs = {}
    for stem, path in toml.stems().items():
        try:
            config = toml.load(path)
        except UserError:  # `jaxrl configs` names it
            continue
        if config.agent.remembers_past:
            configs[stem] = config
    return configs


def needs(name: str, config: Config, room: Room) -> list[Need]:
    """Returns what a replay takes of the devices and of the host, as `jaxrl train` checks it."""
    size, saved = memory_bytes(config), saves_memory(config)
    number = config.parallel.num_devices or room.num_devices

    def need(bytes_taken: float, free: float, where: str, unsaved: float) -> Need:
        each = bytes_per_transition(config) * bytes_taken / size
        capacity = int(USABLE * free / each)
        return Need(name, bytes_taken, free, where, capacity // ROUND * ROUND or capacity, unsaved)

    if room.device is None:
        where = "of host memory" + ", half of it for checkpoints" * saved
        return [need((1 + saved) * size, room.host, where, size)]
    where = "on the device" if number == 1 else "on each device"
    memories = [need(size / number, room.device, where, size / number)]
    if saved:
        memories.append(need(size, room.host, "of host memory for checkpoints", 0.0))
    return memories


def check_replays(machine: Mapping[str, Any], configs: Mapping[str, Config]) -> Check:
    """Checks that the replays of configurations by name fit into the free memory of a machine."""
    free = room(machine)
    configs = {name: config for name, config in configs.items() if memory_bytes(config)}
    if not configs:
        return Check(NAME, "ok", "none is needed")
    if free is None:
        return Check(NAME, "warning", "cannot be determined", "look for yourself: free --giga")
    every = [need for name, config in configs.items() for need in needs(name, config, free)]
    lacking = sorted((need for need in every if not need.fits), key=lambda need: -need.need)
    if not lacking:
        largest = max(every, key=lambda need: need.need).name
        parts = [
            f"{_gb(need.need)} {need.where} ({_gb(need.free)} free)"
            for need in every
            if need.name == largest
        ]
        which = largest if len(configs) == 1 else f"all {len(configs)} fit: {largest}, the largest,"
        return Check(NAME, "ok", f"{which} needs {listed(parts)}")
    worst = lacking[0]
    others = [name for name in dict.fromkeys(need.name for need in lacking) if name != worst.name]
    text = (
        f"{worst.name} needs {_gb(worst.need)} {worst.where}, and {_gb(USABLE * worst.free)} of "
        f"{_gb(worst.free)} free may hold it"
    )
    if others:
        shown = others[:MOST] + [f"{len(others) - MOST} more"] * (len(others) > MOST)
        text += f"; nor do {listed(shown)} fit" if len(others) > 1 else f"; nor does {shown[0]} fit"
    return Check(NAME, "warning", text, _remedy(worst))


def line(check: Check) -> str:
    """Returns a check as a line of a command that prints no marks."""
    return f"{check.name}: {check.text}" + f" -> {check.remedy}" * bool(check.remedy)


def _remedy(need: Need) -> str:
    """Returns what to do about a replay that does not fit."""
    fewer = f"jaxrl train --config {need.name} --agent.replay-capacity {need.capacity}"
    if need.unsaved < need.need and need.unsaved <= USABLE * need.free:
        less = f" ({_gb(need.unsaved)})" if need.unsaved else ""
        return f"--checkpoint.no-memory{less}, or {fewer}"
    return fewer


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"
