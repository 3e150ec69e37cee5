"""TensorBoard's file of events, which has the rows of metrics.jsonl; its x is the agent step.

tensorboardX's `SummaryWriter` cannot write it: its thread dies on a full disk, after which training
blocks on its queue, and its `flush` does not wait for that queue.
"""

import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tensorboardX.proto import event_pb2, summary_pb2
from tensorboardX.record_writer import masked_crc32c

from jaxrl.runs import layout
from jaxrl.runs.sinks import Row, RowFile


def open_sink(run_dir: Path, rows: list[Row], say: Callable[[str], None]) -> RowFile:
    """Returns the sink, which begins with the given rows and replaces older files."""
    older = list(run_dir.glob(f"{layout.EVENTS}.*"))
    name = f"{layout.EVENTS}.{time.time_ns() // 10**9:010}.{socket.gethostname()}"
    path = run_dir / name
    while path in older:
        path = path.with_name(f"{path.name}.1")
    began = time.time() - (rows[-1]["seconds"] if rows else 0.0)
    head = _record(event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2"))
    file = RowFile(path, rows, partial(_encode, began), say, head)
    for old in older:
        old.unlink(missing_ok=True)
    return file


def _encode(began: float, row: Row) -> bytes:
    values = [
        summary_pb2.Summary.Value(tag=name if "/" in name else f"run/{name}", simple_value=value)
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float)
    ]
    return _record(
        event_pb2.Event(
            wall_time=began + row["seconds"],
            step=int(row["step"]),
            summary=summary_pb2.Summary(value=values),
        )
    )


def _record(event: event_pb2.Event) -> bytes:
    """Returns an event with its length and checksums, as TensorFlow frames records."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, data)]
    return length + sums[0] + data + sums[1]
