"""Lets processes that are started by hand meet before JAX connects them.

JAX aborts a process with a stack trace if the others do not come. So process 0 first listens at the
same address: each of the others sends its number, and all continue when the last has arrived.
"""

import contextlib
import socket
import sys
import time

from jaxrl.errors import UserError
from jaxrl.runtime.launch import Launch

WELCOME, REFUSED = "welcome", "refused: "


def meet(launch: Launch) -> None:
    """Waits until all processes have arrived. Raises `UserError` that names the missing ones."""
    deadline = time.monotonic() + launch.join_within
    if launch.process_id:
        _arrive(launch, deadline)
    else:
        _receive(launch, deadline)


def _listen(launch: Launch) -> socket.socket:
    """Opens the port of the coordinator. Raises `UserError` if it is taken."""
    port = int(launch.coordinator.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        return socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise UserError(
            f"cannot listen at port {port} of --coordinator ({error.strerror}): choose another "
            "port, and give --process-id 0 to one process only"
        ) from None


def _hear(server: socket.socket, deadline: float) -> tuple[socket.socket, list[str]]:
    """Returns the next guest and its two numbers. Raises `TimeoutError` at the deadline."""
    while True:
        server.settimeout(max(deadline - time.monotonic(), 0.01))
        guest = server.accept()[0]
        guest.settimeout(5)
        with contextlib.suppress(OSError):
            numbers = guest.recv(64).decode(errors="replace").split()
            if len(numbers) == 2 and all(map(str.isdecimal, numbers)):
                return guest, numbers
        guest.close()  # a stranger


def _receive(launch: Launch, deadline: float) -> None:
    """Collects the other processes, in process 0."""
    count, address = launch.num_processes, launch.coordinator
    guests: dict[int, socket.socket] = {}
    print(
        f"waiting for {count - 1} more at {address}, up to {launch.join_within:g} s",
        file=sys.stderr,
        flush=True,
    )
    with _listen(launch) as server:
        while len(guests) < count - 1:
            try:
                guest, (process, number) = _hear(server, deadline)
            except TimeoutError:
                names = ", ".join(str(p) for p in range(1, count) if p not in guests)
                raise UserError(
                    f"no sign of process {names} within {launch.join_within:g} s: start it with "
                    f"--coordinator {address} --num-processes {count}"
                ) from None
            wrong = ""
            if int(number) != count:
                wrong = f"process {process} has --num-processes {number}, process 0 has {count}"
            elif int(process) in guests or int(process) == 0:
                wrong = f"two processes have --process-id {process}"
            if wrong:
                _answer([*guests.values(), guest], REFUSED + wrong)
                raise UserError(wrong)
            guests[int(process)] = guest
        _answer(list(guests.values()), WELCOME)


def _answer(guests: list[socket.socket], what: str) -> None:
    """Sends a message to the guests and hangs up."""
    for guest in guests:
        with contextlib.suppress(OSError), guest:
            guest.sendall(what.encode())
            guest.recv(1)  # the guest hangs up first, which frees the port at once


def _arrive(launch: Launch, deadline: float) -> None:
    """Reports this process to process 0, and waits for the rest."""
    host, _, port = launch.coordinator.rpartition(":")
    hello = f"{launch.process_id} {launch.num_processes}".encode()
    reason: object = "no answer"
    while time.monotonic() < deadline:
        left = max(deadline - time.monotonic(), 0.01)
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=left) as server:
                server.sendall(hello)
                answer = server.recv(1024).decode(errors="replace")
        except OSError as error:
            reason = error
            time.sleep(0.5)
            continue
        if answer == WELCOME:
            return
        if answer.startswith(REFUSED):
            raise UserError(answer.removeprefix(REFUSED))
        reason = "another program answers" if answer else "process 0 hung up"
        time.sleep(0.5)
    raise UserError(
        f"cannot join the other processes at {launch.coordinator} within {launch.join_within:g} s "
        f"({reason}): check --coordinator, and that all processes run"
    )
