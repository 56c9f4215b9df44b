"""The production form on one machine: Redis and the load generator on core 0, gateway, writer and MariaDB on core 1."""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import urllib.request

from .errors import BadMeasurement, CannotStart
from .paths import BINARIES
from .servers import Server, cpu_ns, free_port, fresh_folder

REDIS_CORE, GATEWAY_CORE = "0", "1"
# The load generator waits awake, on Redis's core.
LOAD_CORE = REDIS_CORE
SERVES = re.compile(r"rushgate serves on (\S+) \(admin: (\S+)\)")
WRITES = re.compile(r"rushgate writer .*?(127\.0\.0\.1:\d+)")
PASSWORD = "bench"
LIMITS = ["global", "per_ip", "per_user", "result_per_user"]
PERSISTENCE = {
    "off": ["--appendonly", "no"], "everysec": ["--appendonly", "yes", "--appendfsync", "everysec"],
    "always": ["--appendonly", "yes", "--appendfsync", "always"],
}


class Redis:
    """redis-server with a data folder of its own."""

    def __init__(self, persistence, core=REDIS_CORE):
        self.port = free_port()
        folder = fresh_folder(f"redis-{persistence}")
        self._server = Server("redis", [
            "redis-server", "--port", self.port, "--bind", "127.0.0.1", "--dir", folder, "--save", "",
            "--auto-aof-rewrite-percentage", 0, *PERSISTENCE[persistence]], folder, core=core)
        self._server.wait_for_port(self.port)

    @property
    def pids(self):
        return self._server.pids

    def info(self, section):
        """Its fields; those of commandstats as they are."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(b"INFO %s\r\n" % section.encode())
            with connection.makefile("rb") as answer:
                text = answer.read(int(answer.readline()[1:])).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def commands(self):
        """Commands executed so far, those inside scripts left out."""
        return int(self.info("stats")["total_commands_processed"])

    def function_calls(self):
        stats = self.info("commandstats").get("cmdstat_fcall", "calls=0,")
        return int(re.search(r"calls=(\d+)", stats).group(1))

    def stop(self):
        self._server.stop()


class MariaDb:
    """mariadbd with durable defaults and a data folder of its own."""

    def __init__(self, core=GATEWAY_CORE):
        self.folder = fresh_folder("mariadb")
        data = self.folder / "data"
        installed = subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             "--skip-test-db", f"--user={_user()}"], check=False, capture_output=True, text=True)
        if installed.returncode != 0:
            raise CannotStart(f"mariadb-install-db: {installed.stderr[-300:]}")
        self.port, self.socket = free_port(), self.folder / "s"
        self._server = Server("mariadb", [
            shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}", f"--socket={self.socket}",
            f"--port={self.port}", "--bind-address=127.0.0.1", "--innodb-buffer-pool-size=1G", f"--user={_user()}"],
            self.folder, core=core)
        self._server.wait_for_port(self.port)
        self.sql("CREATE DATABASE rushgate; CREATE USER rushgate@'%' IDENTIFIED BY 'bench';"
                 "GRANT ALL ON rushgate.* TO rushgate@'%';")

    @property
    def pids(self):
        return self._server.pids

    def sql(self, statements):
        done = subprocess.run(["mariadb", "--no-defaults", "-u", "root", f"--socket={self.socket}", "-N", "-B"],
                              input=statements, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise BadMeasurement(f"mariadb: {done.stderr.strip()}")
        return done.stdout

    def orders(self):
        return int(self.sql("SELECT COUNT(*) FROM rushgate.orders"))

    def stop(self):
        self._server.stop()


def _user():
    return pathlib.Path("/proc/self").owner()


class Shop:
    """Configuration that gateways and writers of one installation share."""

    def __init__(self, redis, mariadb, redis_port=None):
        self.folder = fresh_folder("shop")
        (self.folder / "password").write_text(PASSWORD)
        (self.folder / "secret").write_text("a secret of the bench alone, long enough")
        lines = [
            "[gateway]", 'listen = "127.0.0.1:0"', "worker_threads = 1", "[admin]", 'listen = "127.0.0.1:0"',
            "[store]", 'kind = "redis"', "[redis]", f'nodes = ["127.0.0.1:{redis_port or redis.port}"]', "[mysql]",
            f"port = {mariadb.port}", 'password_file = "password"', "[auth]", 'secret_file = "secret"', "[writer]",
            'admin_listen = "127.0.0.1:0"',
        ]
        for limit in LIMITS:
            lines += [f"[limits.{limit}]", "rate_per_s = 10000000", "burst = 100000000"]
        (self.folder / "rushgate.toml").write_text("\n".join(lines) + "\n")

    def gateway(self, core=GATEWAY_CORE):
        server = Server("gateway", [BINARIES / "rushgate", "serve", "--config", "rushgate.toml"], self.folder, core=core)
        found = server.wait_for_line(SERVES)
        return server, found.group(1), found.group(2)

    def writer(self, core=GATEWAY_CORE, **settings):
        command = [BINARIES / "rushgate", "writer", "--config", "rushgate.toml"]
        for key, value in settings.items():
            command += ["--set", f"writer.{key}={value}"]
        server = Server("writer", command, self.folder, core=core)
        return server, server.wait_for_line(WRITES).group(1)

    def activity(self, number, units):
        """Created, preheated at once, and open; loads are driven by a writer."""
        self.command("activity", "create", "--id", number, "--name", "bench", "--sku", f"1:{units}:100",
                     "--opens", "+2s", "--closes", "+24h")

    def command(self, *words):
        done = subprocess.run([str(BINARIES / "rushgate"), *map(str, words), "--config", "rushgate.toml", "--json"],
                              cwd=self.folder, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise CannotStart(f"rushgate {words[0]} {words[1]}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    @property
    def token_options(self):
        return ["--secret-file", self.folder / "secret"]


def metrics(admin):
    """The gauges and counters without labels, by name."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in found}


def resident_bytes(pids):
    pages = 0
    for pid in pids:
        pages += int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


class Cpu:
    """CPU time of processes between two moments."""

    def __init__(self, **pids):
        self._pids = pids
        self._before = {name: cpu_ns(of) for name, of in pids.items()}

    def per(self, count):
        """Microseconds each, by name."""
        return {name: (cpu_ns(of) - self._before[name]) / count / 1000 for name, of in self._pids.items()}
