"""`python -m kernax.scale.launch --processes 4 script.py ...`: a job of several processes here.

Each process runs the script, in which `kernax.scale.connect()` connects it with the others, over
the loopback interface of this machine. Each line that a process writes appears after its number. As
soon as one of them fails, by an exception, a signal or `sys.exit`, all are ended, as they are where
the launcher is ended itself. Slurm, Open MPI and Kubernetes start processes themselves: there it is
not needed.

Exit status: that of the process that failed first, 128 more than the number of a signal, or 0.
"""

import argparse
import collections
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from kernax.scale.cluster.processes import COORDINATOR, PROCESS, PROCESSES

_LAST = 20  # lines that are shown of a process that failed
_OFTEN = 0.02  # seconds between two looks at the processes
_A_WHILE = 5.0  # seconds, for what is written to arrive once its writer has ended
_LAUNCHED = Path(__file__).with_name("launched.py")
# A line that the library which connects processes writes for each of them; it is left out.
_OF_GLOO = re.compile(r"\[Gloo\] Rank \d+ is connected to")

# A process of its own that ends the process groups whose numbers it reads, if the launcher is
# killed: then its input ends without the line "over".
_GUARD = """
import os, signal, sys
groups = []
for line in sys.stdin:
    if line == "over\\n":
        sys.exit()
    groups.append(int(line))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""


class _Process:
    """One process of a job, which leads a group of its own."""

    def __init__(self, number: int, command: Sequence[str], environment: dict[str, str]):
        self.number = number
        self.last: collections.deque[str] = collections.deque(maxlen=_LAST)
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._pass_on, daemon=True)
        self._reader.start()

    @property
    def group(self) -> int:
        """The number of this process, and of its group, in the system."""
        return self._process.pid

    def _pass_on(self) -> None:
        """Writes what the process writes, line by line."""
        lines: IO[bytes] | None = self._process.stdout
        assert lines is not None
        with lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip("\n")
                if not _OF_GLOO.match(text):
                    self._write(text)

    def _write(self, text: str) -> None:
        """Writes a line of the process, with its number."""
        self.last.append(text)
        # Where standard output is closed the process is still read, or it would wait to write.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(f"[{self.number}] {text}\n")
            sys.stdout.flush()

    def status(self) -> int | None:
        """How the process ended: its exit status, or minus a signal; None while it runs.

        It keeps its number, so that no other group can have it, until `end` is called.
        """
        ended = os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def kill(self) -> None:
        """Ends the process and all that it started in its group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group, signal.SIGKILL)

    def close(self) -> None:
        """Waits until the process has ended, and until all that it wrote was read."""
        self._process.wait()
        self._reader.join(_A_WHILE)

    def ending(self, status: int, processes: int) -> str:
        """The message where the failure of this process has ended the job."""
        others = "" if processes == 1 else ", and all others were ended"
        lines = [f"  {line}" for line in self.last] or ["  (nothing)"]
        return "\n".join(
            [
                f"process {self.number} of {processes} (pid {self.group}) {_in_words(status)}"
                f"{others}. The last lines that it wrote:",
                *lines,
            ]
        )


def _in_words(status: int) -> str:
    """How a process ended."""
    if status >= 0:
        return f"ended with exit status {status}"
    advice = ""
    if status == -signal.SIGKILL:
        advice = ", as the system does where memory runs out"
    return f"was killed by {_name_of_signal(-status)}{advice}"


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Job(NamedTuple):
    """What is to be run.

    Attributes:
        command: the same for all processes.
        processes: how many.
        devices: how many accelerators of this machine each of them has; None for all.
    """

    command: Sequence[str]
    processes: int
    devices: int | None = None

    def environment(self, number: int, port: int) -> dict[str, str]:
        """The variables that tell a process which one it is."""
        address = f"127.0.0.1:{port}"
        own = {
            COORDINATOR: address,
            PROCESSES: str(self.processes),
            PROCESS: str(number),
            "JAX_COORDINATOR_BIND_ADDRESS": address,  # for processes of this machine alone
            "PYTHONUNBUFFERED": "1",  # or the last lines of a process that is killed were lost
        }
        if self.devices is not None:
            first = number * self.devices
            devices = range(first, first + self.devices)
            own["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, devices))
        return os.environ | own


def launch(job: Job, signals: Sequence[int]) -> int:
    """Runs a job until all processes have ended, or one has failed, or there is a signal.

    Returns the exit status; a failure is told on standard error.
    """
    failed = _run(job, signals)
    if failed is not None:
        process, status = failed
        _say(process.ending(status, job.processes))
        return status if status > 0 else 128 - status
    if signals:
        _say(f"ended by {_name_of_signal(signals[0])}, and all processes with it")
        return 128 + signals[0]
    return 0


def _run(job: Job, signals: Sequence[int]) -> tuple[_Process, int] | None:
    """The first process that failed, if any, and its status, after all have ended."""
    started: list[_Process] = []
    with _guard() as guard, _free_port() as port:
        try:
            for number in range(job.processes):
                started.append(_Process(number, job.command, job.environment(number, port)))
                guard.write(f"{started[-1].group}\n".encode())
                guard.flush()
            return _first_that_fails(started, signals)
        finally:
            _end_all(started)


def _say(message: str) -> None:
    sys.stdout.flush()
    print(f"kernax.scale.launch: {message}", file=sys.stderr, flush=True)


def _first_that_fails(
    processes: Sequence[_Process], signals: Sequence[int]
) -> tuple[_Process, int] | None:
    """Waits until one has failed, or, and then None, all have ended well or there is a signal."""
    running = list(processes)
    while running and not signals:
        for process in list(running):
            status = process.status()
            if status == 0:
                running.remove(process)
            elif status is not None:
                return process, status
        time.sleep(_OFTEN)
    return None


def _end_all(processes: Sequence[_Process]) -> None:
    """Ends all processes, and what they started."""
    for process in processes:
        process.kill()
    for process in processes:
        process.close()


@contextlib.contextmanager
def _guard() -> Iterator[IO[bytes]]:
    """The input of a process that outlives this one, for as long as it takes to end all groups."""
    command = [sys.executable, "-S", "-E", "-c", _GUARD]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    ) as guard:
        assert guard.stdin is not None
        try:
            yield guard.stdin
        finally:
            with contextlib.suppress(OSError):  # it was ended by somebody else
                guard.stdin.write(b"over\n")
                guard.stdin.flush()


@contextlib.contextmanager
def _free_port() -> Iterator[int]:
    """A port of the loopback interface that the system gives to no other process meanwhile.

    Process 0, which is to listen there, may share it, as gRPC does everywhere on Linux.
    """
    with socket.socket() as held:
        if hasattr(socket, "SO_REUSEPORT"):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def command_of(script: str, arguments: Sequence[str]) -> list[str]:
    """What runs a script in one of the processes."""
    return [sys.executable, str(_LAUNCHED), script, *arguments]


_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if os.name == "posix" else []))


def _parser() -> argparse.ArgumentParser:
    """What the command line takes."""
    parser = argparse.ArgumentParser(
        prog="python -m kernax.scale.launch",
        description="Runs a script in several processes of this machine, which "
        "kernax.scale.connect() connects, and ends all as soon as one fails.",
    )
    parser.add_argument("--processes", type=int, required=True, metavar="N")
    parser.add_argument(
        "--devices",
        type=int,
        metavar="K",
        help="accelerators of this machine for each process, in order; otherwise each has all",
    )
    parser.add_argument("script", help="a Python program")
    rest = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the script")
    rest.required = False  # for the message where something else is missing
    return parser


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What came from the command line. Exits with a message where that cannot be."""
    parser = _parser()
    options = parser.parse_args(arguments)
    for name in ("processes", "devices"):
        number = getattr(options, name)
        if number is not None and number < 1:
            parser.error(f"--{name} must be at least 1, but is {number}")
    if os.path.isdir(options.script):
        parser.error(f"{options.script} is a folder: name the Python program in it")
    if not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script}")
    if not hasattr(os, "waitid"):
        parser.error("this needs Linux, or macOS with Python 3.13")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _options(arguments)
    command = command_of(options.script, options.arguments)
    signals: list[int] = []
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, frame: signals.append(number))
    return launch(Job(command, options.processes, options.devices), signals)


if __name__ == "__main__":
    sys.exit(main())
