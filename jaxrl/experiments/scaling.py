"""The traffic between devices in an update, and a model of throughput against devices.

Data-parallel training repeats, on every device, t seconds of play and learning that do not depend
on the number of devices D as long as each keeps its environments, and then all-reduces. A ring
all-reduce of B bytes takes 2 (D-1) steps of B / D bytes each (Patarasuk & Yuan 2009), so k of them

c(D) = 2 (D-1) / D · B / bandwidth + k · 2 (D-1) · latency,  steps/s = D · S / (t + c(D))

for S agent steps that each device plays in an update. A ring all-gather of G bytes from each device
takes D-1 steps of G bytes, so j of them add (D-1) · G / bandwidth + j · (D-1) · latency to c(D).
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2}
BYTES |= {"s16": 2, "u16": 2, "s8": 1, "u8": 1, "pred": 1}
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_CALLED = re.compile(r"(?:body|to_apply|calls|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'known_trip_count"?:\{"?n"?:"?(\d+)')
_COLLECTIVE = re.compile(r"= (.*) (all-reduce|all-gather)(-start)?\(")
_DEVICES = re.compile(r"^HloModule .*num_partitions=(\d+)")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


class Traffic(NamedTuple):
    """The collectives of one update, and the bytes that each device hands to them."""

    bytes: float  # to all-reduces
    all_reduces: float
    gathered_bytes: float = 0.0  # to all-gathers, without those of the other devices
    all_gathers: float = 0.0


NOTHING = Traffic(0.0, 0.0)


def traffic(program: str, gradient_steps: int = 1) -> Traffic:
    """Reads the collectives of one update out of HLO text, whose outermost loop is over updates.

    All rounds of loops count: `gradient_steps` where the compiler does not know their number.
    """
    bodies: dict[str, list[str]] = {}
    entry, name = "", ""
    partitions = _DEVICES.match(program)
    num_devices = int(partitions[1]) if partitions else 1
    for line in program.splitlines():
        if header := _COMPUTATION.match(line):
            name = header[1]
            bodies[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            bodies[name].append(line)

    def count(computation: str, depth: int) -> Traffic:
        parts = [NOTHING]
        for line in bodies.get(computation, []):
            if collective := _COLLECTIVE.search(line):
                parts.append(_handed_over(collective, num_devices))
                continue
            is_loop = " while(" in line
            trips = _TRIPS.search(line) if is_loop else None
            rounds = int(trips[1]) if trips else gradient_steps if is_loop and depth else 1
            for called in _called(line):
                inner = count(called, depth + is_loop)
                parts.append(Traffic(*(rounds * number for number in inner)))
        return Traffic(*(sum(figures) for figures in zip(*parts, strict=True)))

    return count(entry, 0)


def _handed_over(collective: re.Match[str], num_devices: int) -> Traffic:
    """Returns what one device hands to an all-reduce or to an all-gather."""
    shapes, kind, start = collective.groups()
    size = sum(_sizes(shapes))
    if kind == "all-reduce":
        return Traffic(size, 1)
    # The result has the parts of all devices; that of a start has the device's own beside them.
    return Traffic(0, 0, size / (num_devices + (start is not None)), 1)


def _called(line: str) -> Iterator[str]:
    yield from _CALLED.findall(line)
    for branches in _BRANCHES.findall(line):
        yield from re.findall(r"%?([\w.\-]+)", branches)


def _sizes(shapes: str) -> Iterator[int]:
    for kind, dimensions in _ARRAY.findall(shapes):
        yield BYTES[kind] * math.prod(int(n) for n in dimensions.split(",") if n)


def throughput(
    num_devices: int,
    steps: int,
    seconds: float,
    moved: Traffic,
    bandwidth: float,
    latency: float,
) -> float:
    """Returns the agent steps per second of D devices, by the model above.

    Args:
      num_devices: D.
      steps: S, agent steps that each device plays in an update.
      seconds: t, that one device takes for an update alone.
      moved: by the collectives of an update.
      bandwidth: bytes per second that the slowest link of the ring carries each way.
      latency: seconds that a message takes on it.
    """
    ring = num_devices - 1
    size = 2 * moved.bytes / num_devices + moved.gathered_bytes
    rounds = 2 * moved.all_reduces + moved.all_gathers
    return num_devices * steps / (seconds + ring * (size / bandwidth + rounds * latency))
