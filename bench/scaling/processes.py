"""Processes under measurement: pinned to their core, read through /proc, ended by their id.

All of them are children of this program. `end_all` runs however the program ends, so that none is left behind.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from .preparation import BINARIES, say

SERVER_CORE = 0
GENERATOR_CORE = 1
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
END_TIMEOUT_S = 15

_children: list[subprocess.Popen] = []


def spawn(command: list, cores: set[int], log=None) -> subprocess.Popen:
    """Starts a child on these cores; its standard output is a pipe."""
    child = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log if log is not None else subprocess.PIPE,
        text=True,
        preexec_fn=lambda: prepare(cores),
    )
    _children.append(child)
    return child


def prepare(cores: set[int]) -> None:
    """In the child: its cores, and as many descriptors as it may have."""
    os.sched_setaffinity(0, cores)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def end(child: subprocess.Popen) -> None:
    """Asks it to end; kills it when it does not."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            say(f"process {child.pid} did not end, killed")
            child.kill()
            child.wait()
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
    if child in _children:
        _children.remove(child)


def end_all() -> None:
    """Ends every child that is left."""
    for child in list(_children):
        child.kill()
        end(child)


def start_loadgen(command: str, gateway, *arguments, cores: set[int] | None = None) -> subprocess.Popen:
    """`rushgate-loadgen COMMAND` against a gateway, in its JSON form."""
    line = [BINARIES / "rushgate-loadgen", command, "--addr", gateway.addr, "--json", *arguments]
    if gateway.folder is not None:
        line += ["--data-dir", gateway.folder]
    return spawn(line, cores or {GENERATOR_CORE})


def start_module(module: str, arguments: dict) -> subprocess.Popen:
    """A module of this package as a process of its own; its arguments are one JSON object."""
    bench = Path(__file__).resolve().parents[1]
    program = f"import sys; sys.path.insert(0, {str(bench)!r}); from scaling.{module} import main; main()"
    return spawn([sys.executable, "-B", "-c", program, json.dumps(arguments)], {GENERATOR_CORE})


def result(child: subprocess.Popen, may_complain: bool = False) -> dict:
    """The JSON object that a child printed at its end; `may_complain`: its exit code 1 is a finding, not a failure."""
    out, err = child.communicate()
    code = child.returncode
    end(child)
    if code != 0 and not (may_complain and code == 1 and out.strip()):
        raise RuntimeError(f"{' '.join(child.args)}\nended with {code}: {(err or '').strip()}")
    found = json.loads(out.strip().splitlines()[-1])
    if code != 0:
        found["complaint"] = (err or "").strip()
    return found


def cpu_ns(pid: int) -> int:
    """CPU time of a process: nanoseconds of its threads, or ticks where threads that ended make those too few."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks_ns = (int(fields[11]) + int(fields[12])) * TICK_NS
    threads_ns = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            threads_ns += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue
    return threads_ns if ticks_ns <= threads_ns + 2 * TICK_NS else ticks_ns


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, pages of files included."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:", 1)[1].split()[0]) * 1024


def descriptors(pid: int) -> int:
    """Open descriptors of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def kernel_bytes() -> int:
    """What the kernel holds in its own allocator, all of the machine: sockets, their files, epoll entries."""
    text = Path("/proc/meminfo").read_text()
    return int(text.split("Slab:", 1)[1].split()[0]) * 1024


def loopback() -> tuple[int, int]:
    """Packets and bytes that loopback has carried."""
    line = next(line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    fields = line.split(":", 1)[1].split()
    return int(fields[1]), int(fields[0])


def tcp_counters() -> dict[str, int]:
    """The kernel's counters of what happens to connections that find no room."""
    counters: dict[str, int] = {}
    for file, prefix in (("/proc/net/netstat", "TcpExt:"), ("/proc/net/snmp", "Tcp:")):
        lines = [line.split() for line in Path(file).read_text().splitlines() if line.startswith(prefix)]
        counters.update(zip(lines[0][1:], map(int, lines[1][1:])))
    names = ("ListenOverflows", "ListenDrops", "TCPReqQFullDoCookies", "TCPReqQFullDrop", "SyncookiesSent", "RetransSegs")
    return {name: counters.get(name, 0) for name in names}


def wait_until(what: str, seconds: float, is_so, every_s: float = 0.05) -> None:
    """Waits for an event that is seen from outside only; gives up with a name."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise RuntimeError(f"waited {seconds:.0f} s for this in vain: {what}")
        time.sleep(every_s)
