"""Several processes that train as one: they join, agree, detect a loss, and end together.

`jax.distributed` connects them. SLURM, Open MPI, Kubernetes, Cloud TPU or the command line gives
each process its number. Every process then runs the same program over global arrays, so all hosts
must make the same decisions between two compiled calls (`agree`).
"""

import contextlib
import ctypes
import importlib.util
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

# The coordinator's key-value store has no public name; JAX's multihost tools use this one too.
from jax._src import distributed
from jax.experimental import multihost_utils

from jaxrl.errors import RunError, UserError, first_line
from jaxrl.runtime.exit import print_at_once
from jaxrl.runtime.launch import Launch, launched_together, launchers_number, local_gpus
from jaxrl.runtime.rendezvous import meet

LOST = 75  # exit status of the processes that remain (EX_TEMPFAIL: try again)
BEAT = 1.0  # seconds between two signs of life
LONGEST = 7 * 24 * 3600  # seconds that the first may wait for the last one at the end
MESSAGE = 32_768  # bytes, most that process 0 sends to the others
SECONDS_TO_SEE = 60.0  # until a file of process 0 appears: network file systems cache listings
ALIVE = "jaxrl/alive"
_ended = threading.Event()
_ending = threading.Event()  # the watchdog ends this process
_patience = 30.0  # seconds without a sign of life
_advice = ""  # the end of the message when a process was lost


def count() -> int:
    """Returns the number of processes that train together; touches no device."""
    return distributed.global_state.num_processes


def index() -> int:
    """Returns the number of this process among them; touches no device."""
    return distributed.global_state.process_id


def _store() -> Any:
    """Returns the client of the key-value store, which lives in process 0."""
    return distributed.global_state.client


def _on_tpu() -> bool:
    return importlib.util.find_spec("libtpu") is not None and any(
        Path("/dev").glob(name) for name in ("accel*", "vfio")
    )


def join(launch: Launch) -> None:
    """Connects this process to the others, if there are any; call it before touching a device.

    Raises `UserError` if the others cannot be found.
    """
    global _patience
    _patience = launch.lost_after
    if launch.num_processes == 1:
        return  # alone, whatever a launcher has set
    together = bool(launch.coordinator) or launched_together(os.environ)
    if not (together or _on_tpu()):
        return
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    given: dict[str, Any] = {"local_device_ids": local_gpus(os.environ, present)}
    if launch.coordinator:
        given["coordinator_address"] = launch.coordinator
    if launch.coordinator and os.environ.get("OMPI_COMM_WORLD_SIZE"):  # Open MPI 5 has no more
        rank, size = (
            launchers_number(os.environ, f"OMPI_COMM_WORLD_{name}", None)
            for name in ("RANK", "SIZE")
        )
        given |= {"num_processes": size, "process_id": rank}
    if launch.num_processes:
        given |= {"num_processes": launch.num_processes, "process_id": launch.process_id}
    if launch.num_processes:
        meet(launch)
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=round(launch.join_within),
            # JAX aborts a process that this module's watchdog has not ended.
            heartbeat_timeout_seconds=round(2 * launch.lost_after) + 20,
            shutdown_timeout_seconds=60,
        )
    except (ValueError, RuntimeError, KeyError) as error:
        if not together and isinstance(error, ValueError):
            return  # one host of a TPU, outside a pod
        missing = isinstance(error, KeyError)
        reason = f"the environment lacks {error.args[0]}" if missing else first_line(error)
        raise UserError(
            f"cannot join the other processes: {reason} (give each of them "
            "--coordinator HOST:PORT, --num-processes N and its --process-id)"
        ) from None
    if count() > 1:
        _share_cores()
        threading.Thread(target=_watchdog, daemon=True).start()


def _host() -> str:
    """Returns a name of this machine, the same in all its containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _share_cores() -> None:
    """Divides a machine's cores among its processes, unless a launcher has bound them already."""
    if not hasattr(os, "sched_setaffinity"):
        return
    store = _store()
    mine = sorted(os.sched_getaffinity(0))
    place = f"{_host()} {mine}"
    store.key_value_set(f"jaxrl/place/{index():06}", place)
    store.wait_at_barrier("jaxrl/places", 60_000)
    places = sorted(store.key_value_dir_get("jaxrl/place"))
    sharing = [name for name, other in places if other == place]
    rank = [name.rsplit("/", 1)[1] for name in sharing].index(f"{index():06}")
    share = max(1, len(mine) // len(sharing))
    first = rank * share % len(mine)
    os.sched_setaffinity(0, mine[first : first + share])


def _signs() -> dict[int, str]:
    """Returns each process's last sign: a growing number, or "left STATUS: " and the reason."""
    signs = {process: "" for process in range(count())}
    entries = _store().key_value_dir_get(ALIVE)
    return signs | {int(name.rsplit("/", 1)[1]): sign for name, sign in entries}


def advise(advice: str) -> None:
    """Sets the advice to the user for the case that a process is lost."""
    global _advice
    _advice = f"; {advice}"


def _watchdog() -> None:
    """Shows signs of life, and ends this process if another shows none.

    Otherwise a device would wait forever in a collective for a lost one.
    """
    now = answered = time.monotonic()
    seen = {process: ("", now) for process in range(count())}
    beats = 0
    while not _ended.wait(BEAT):
        beats += 1
        now = time.monotonic()
        try:
            _store().key_value_set(f"{ALIVE}/{index()}", str(beats), allow_overwrite=True)
            signs, answered = _signs(), now
        except jax.errors.JaxRuntimeError:
            if now - answered > _patience:
                _end_for("process 0, the coordinator, was lost")
            continue
        for process, sign in signs.items():
            if sign != seen[process][0]:
                seen[process] = (sign, now)
            if sign.startswith("left"):
                time.sleep(2 * BEAT)  # every process reports a mistake that all have made
                status, _, reason = sign.removeprefix("left ").partition(": ")
                _end_for(
                    f"process {process} left: {reason}", LOST if status == "1" else int(status)
                )
            if now - seen[process][1] > _patience:
                _end_for(f"process {process} was lost: no sign of life for {_patience:g} seconds")


def _end_for(reason: str, status: int = LOST) -> NoReturn:
    """Ends this process at once, because its main thread may hang in a collective."""
    _ending.set()
    print_at_once(f"jaxrl: {reason}; process {index()} ends too{_advice}")
    _let_others_read()
    os._exit(status)


def _let_others_read() -> None:
    """Waits in process 0: its end closes the store, and JAX aborts those that still read it."""
    if index() == 0:
        time.sleep(5 * BEAT)


def find_lost(error: BaseException) -> None:
    """Waits until it is known whether an error comes from the loss of another process.

    If so, the watchdog ends this process. Returns if all others live: the error is this process's.
    """
    if isinstance(error, UserError | RunError | KeyboardInterrupt):
        return
    before: dict[int, str] = {}
    deadline = time.monotonic() + _patience + 3 * BEAT
    while time.monotonic() < deadline:
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            signs = _signs()
            before = before or signs
            others = [process for process in signs if process != index()]
            if all(_beats(signs[p]) >= _beats(before[p]) + 3 for p in others):
                return
        time.sleep(BEAT)
    while _ending.is_set():  # the watchdog ends this process
        time.sleep(BEAT)


def _beats(sign: str) -> int:
    return int(sign) if sign.isdecimal() else 0


def leave(status: int, error: BaseException) -> NoReturn:
    """Ends this process after an error, and sends the reason to the others, which end soon."""
    _ended.set()  # the watchdog must not end it first
    reason = " ".join(str(error).split())[:500] or type(error).__name__
    with contextlib.suppress(jax.errors.JaxRuntimeError):
        sign = f"left {status}: {reason}"
        _store().key_value_set(f"{ALIVE}/{index()}", sign, allow_overwrite=True)
    _let_others_read()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def finish() -> None:
    """Waits until all processes have reached the end, and disconnects."""
    if count() == 1:
        return
    wait_for_all("end")
    _ended.set()
    jax.distributed.shutdown()


def wait_for_all(name: str) -> None:
    """Waits until all processes have called it with this name; a collective waits less long."""
    if count() > 1:
        _store().wait_at_barrier(f"jaxrl/{name}", LONGEST * 1000)


def call_in_first(make: Callable[[], str]) -> str:
    """Calls `make` in process 0 and returns its text in all; its `UserError` is raised in all."""
    if count() == 1:
        return make()
    sent = b""
    if index() == 0:
        try:
            sent = b"+" + make().encode()
        except UserError as error:
            sent = b"-" + str(error).encode()
    buffer = np.zeros(MESSAGE, np.uint8)
    buffer[: len(sent[:MESSAGE])] = np.frombuffer(sent[:MESSAGE], np.uint8)
    text = bytes(multihost_utils.broadcast_one_to_all(buffer)).rstrip(b"\0").decode()
    if text.startswith("-"):
        raise UserError(text[1:])
    return text[1:]


def wait_to_see(file: Path) -> None:
    """Waits for a file of the run directory that process 0 wrote. Raises `UserError`."""
    deadline = time.monotonic() + SECONDS_TO_SEE
    while not file.is_file():
        if time.monotonic() > deadline:
            raise UserError(
                f"process {index()} does not see '{file.parent}': put it on a file system that all "
                "machines share, with --run-dir"
            )
        time.sleep(0.5)


def agree(*mine: int) -> np.ndarray:
    """Returns the numbers of all processes: i64[processes, numbers]."""
    if count() == 1:
        return np.array([mine])
    return multihost_utils.process_allgather(np.array(mine))


def check_same(settings: str) -> None:
    """Raises `UserError` if processes were started with different settings, lines of TOML."""
    first = call_in_first(lambda: settings)
    pairs = zip(first.splitlines(), settings.splitlines(), strict=False)
    differ = [f"{mine}, and process 0 {theirs}" for theirs, mine in pairs if theirs != mine]
    others = np.flatnonzero(agree(len(differ))[:, 0])
    if others.size:
        hint = f"has {differ[0]}" if differ else "was started with other settings"
        raise UserError(
            f"process {index() if differ else others[0]} {hint}: start all with the same settings"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences Gloo, which prints from C++ to standard output when processes connect."""
    if count() == 1:
        yield
        return
    sys.stdout.flush()
    before, nothing = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)  # C buffers output that goes to no terminal
        os.dup2(before, 1)
        os.close(before)
        os.close(nothing)
