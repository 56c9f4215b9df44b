"""Servers under measurement: a gateway in a folder of its own, and the bare echo server."""

import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from .preparation import BINARIES, FLOOR_BINARY, echo_binary
from .processes import SERVER_CORE, cpu_ns, descriptors, end, resident_bytes, spawn

# Every limit is on, so that its rung is climbed, and too high to refuse anybody.
LIMIT = {"rate_per_s": 10_000_000, "burst": 100_000_000}
LIMITS = ("global", "per_ip", "per_user", "result_per_user")
# What a process may hold here at most is 20,000 descriptors; the gateway's own stay free.
CONNECTIONS_MAX = 19_500


def rushgate(*arguments) -> str:
    """A command of `rushgate`, to its end; what it printed."""
    done = subprocess.run([BINARIES / "rushgate", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"rushgate {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout.strip()


class Server:
    """A server process; a context, so that it ends with the measurement."""

    folder: Path | None = None
    addr = ""
    process: subprocess.Popen

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        end(self.process)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu_ns(self) -> int:
        return cpu_ns(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    def descriptors(self) -> int:
        return descriptors(self.pid)

    def announced(self, pattern: str) -> re.Match:
        """The line in which it says where it listens."""
        line = self.process.stdout.readline()
        match = re.search(pattern, line)
        if match is None:
            raise RuntimeError(f"{self.process.args[0]} did not start: {line.strip()} {self.log()}")
        return match

    def log(self) -> str:
        """The end of what it logged."""
        file = None if self.folder is None else self.folder / "log"
        return file.read_text()[-2000:] if file is not None and file.exists() else ""


class Gateway(Server):
    """`rushgate serve` on free ports. `activities` are (id, [(sku, stock), …]), created before it starts."""

    contender = "rushgate"

    def __init__(self, activities, workers: int = 1, cores: set[int] | None = None, keys_max: int = 2_000_000):
        self.folder = Path(tempfile.mkdtemp(prefix="rushgate-scale-"))
        for number, skus in activities:
            articles = [part for sku, stock in skus for part in ("--sku", f"{sku}:{stock}:4999")]
            rushgate("activity", "create", "--id", number, "--name", "scale", "--opens", "now", "--closes", "+6h",
                     *articles, "--data-dir", self.folder)
        settings = {
            "gateway.listen": "127.0.0.1:0",
            "admin.listen": "127.0.0.1:0",
            "store.data_dir": self.folder,
            "gateway.connections_max": CONNECTIONS_MAX,
            "gateway.worker_threads": workers,
            "limits.keys_max": keys_max,
        }
        for limit in LIMITS:
            settings |= {f"limits.{limit}.{name}": value for name, value in LIMIT.items()}
        line = [BINARIES / "rushgate", "serve"]
        for key, value in settings.items():
            line += ["--set", f"{key}={value}"]
        with open(self.folder / "log", "w") as log:
            self.process = spawn(line, cores or {SERVER_CORE}, log)
        try:
            match = self.announced(r"serves on (\S+) \(admin: (\S+)\)")
        except BaseException:
            self.__exit__()
            raise
        self.addr, self.admin = match.group(1), match.group(2)

    def metrics(self) -> dict[str, int]:
        """Its counters, by name and label."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines if line and line[0] != "#")}

    def replies(self, status: str) -> int:
        """How many requests it answered so."""
        return self.metrics().get(f'rushgate_replies_total{{status="{status}"}}', 0)

    def service_token(self) -> str:
        """A back end's token."""
        return rushgate("token", "mint", "--service", "--set", f"store.data_dir={self.folder}")


class Echo(Server):
    """`rushgate-echo`: frames are found and returned, nothing is decided. The floor of a request."""

    contender = "echo-tokio"

    def __init__(self, cores: set[int] | None = None):
        self.process = spawn([echo_binary(), "--runtime", "tokio"], cores or {SERVER_CORE})
        self.addr = self.announced(r"(\d+\.\d+\.\d+\.\d+:\d+)").group(1)


class Floor(Server):
    """A bare tokio task per connection that holds nothing but its socket. The floor of a connection's memory."""

    contender = "bare-task"

    def __init__(self):
        self.process = spawn([FLOOR_BINARY], {SERVER_CORE})
        self.addr = self.announced(r"(\d+\.\d+\.\d+\.\d+:\d+)").group(1)
