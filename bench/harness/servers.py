"""Processes of contenders: started on core 0, waited for, stopped by their own id. And the CPU time they used."""

import os
import shutil
import signal
import socket
import subprocess
import time

from .errors import BadMeasurement, CannotStart
from .paths import WORK

SERVER_CORE = "0"
GENERATOR_CORE = "1"
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def on_core(core, command):
    return ["taskset", "-c", core, *map(str, command)]


def free_port():
    """Free now; taken by whoever is started next."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fresh_folder(name):
    """An empty folder of a contender's own."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


class Server:
    """One server process with its log; `pids` are its own and its workers'."""

    def __init__(self, name, command, folder, environment=None, core=SERVER_CORE):
        self.name = name
        self._out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            self._process = subprocess.Popen(
                on_core(core, command), cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **(environment or {})}, start_new_session=True,
            )

    @property
    def pids(self):
        return _with_children(self._process.pid)

    def wait_for_line(self, pattern):
        """Until it printed what the pattern finds; gives the match."""
        return self._wait(lambda: pattern.search(self._out.read_text(errors="replace")), "prints no address")

    def wait_for_port(self, port):
        def connects():
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return True
            except OSError:
                return False
        self._wait(connects, f"does not listen on port {port}")

    def _wait(self, look, complaint):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            ended = self._process.poll()
            found = look()
            if found:
                return found
            if ended is not None:
                raise CannotStart(f"{self.name} ended with code {ended}: {self._last_words()}")
            time.sleep(0.02)
        self.stop()
        raise CannotStart(f"{self.name} {complaint} after {START_TIMEOUT_S:.0f} s: {self._last_words()}")

    def _last_words(self):
        text = self._err.read_text(errors="replace").strip() or self._out.read_text(errors="replace").strip()
        return f"{text[-600:] or 'it said nothing'} (log: {self._err}); without it: --only"

    def stop(self):
        """SIGTERM, and SIGKILL for who does not mind it."""
        if self._process.poll() is not None:
            return
        workers = self.pids
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for pid in reversed(workers):
                _kill(pid)
            self._process.wait()


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _with_children(pid):
    found = [pid]
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += _with_children(int(child))
    except FileNotFoundError:
        pass
    return found


def cpu_ns(pids):
    """User and system time of these processes, all threads, in nanoseconds (steps of 10 ms)."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # Behind the command's name, which may hold anything: state is field 3, utime 14, stime 15.
                fields = file.read().rpartition(")")[2].split()
        except FileNotFoundError:
            raise BadMeasurement(f"the server's process {pid} is gone") from None
        ticks += int(fields[11]) + int(fields[12])
    return ticks * TICK_NS
