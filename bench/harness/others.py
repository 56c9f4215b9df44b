"""The other contenders: bare echo servers, and what people use instead."""

import grp
import http.client
import json
import os
import pathlib
import pwd
import re
import resource
import socket
import time

from . import generators
from .errors import BadMeasurement, CannotStart
from .paths import BINARIES, CONTENDERS, VENV
from .servers import GENERATOR_CORE, SERVER_CORE, Server, free_port, fresh_folder

ADDRESS = re.compile(r"^(127\.0\.0\.1:\d+)$", re.MULTILINE)
SCRIPT = CONTENDERS / "redis/deduct.lua"
MODULES = "/usr/lib/nginx/modules"
UNITS = 1_000_000_000


class Echo:
    """A bare frame-echo server."""

    def __init__(self, runtime):
        folder = fresh_folder(f"echo-{runtime}")
        command = [BINARIES / "rushgate-echo", "--runtime", runtime, "--workers", 1]
        self._server = Server(f"echo-{runtime}", command, folder)
        self._addr = self._server.wait_for_line(ADDRESS).group(1)

    def measure(self, point, timing, rate):
        return generators.flood(
            self._addr, self._server.pids, connections=point.connections, depth=point.depth, seconds=timing.seconds,
            warmup_s=timing.warmup_s, rate=rate, options=["--wire", "echo"])

    def stop(self):
        self._server.stop()


class Redis:
    """A Redis of one contender's own, with the articles' script loaded."""

    def __init__(self, owner, core=SERVER_CORE):
        self.port = free_port()
        self._server = Server(
            "redis", ["redis-server", CONTENDERS / "redis/redis.conf", "--port", self.port, "--dir", "."],
            fresh_folder(f"{owner}-redis"), core=core)
        self._server.wait_for_port(self.port)
        self.sha = self.ask("SCRIPT", "LOAD", SCRIPT.read_text())

    @property
    def pids(self):
        return self._server.pids

    def ask(self, *words):
        """One command; its answer, if that is one line or one string."""
        request = b"*%d\r\n" % len(words)
        for word in words:
            data = str(word).encode()
            request += b"$%d\r\n%s\r\n" % (len(data), data)
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(request)
            with connection.makefile("rb") as answer:
                line = answer.readline().rstrip().decode()
                if line.startswith("$"):
                    return answer.read(int(line[1:])).decode()
        if line.startswith("-"):
            raise CannotStart(f"redis answers {words[0]} with {line[1:]}")
        return line[1:]

    def stock(self, units):
        """A fresh sale."""
        self.ask("FLUSHALL")
        self.ask("SET", "seckill:stock:1", units)

    def units_left(self):
        return int(self.ask("GET", "seckill:stock:1"))

    def stop(self):
        self._server.stop()


def check_sold(units, sample, wins):
    """The script has to have sold what was answered; the run that warmed up comes on top."""
    least = sample["answered"] * generators.EXPECTED_SHARE
    if (units < least) if wins else (units != 0):
        raise BadMeasurement(f"the script sold {units:,} units, but {'at least ' + format(int(least), ',') if wins else 'none'} "
                             "was to be sold")


class RedisScript:
    """The script alone."""

    def __init__(self):
        self._redis = Redis("script")

    def measure(self, point, timing, rate):
        wins = point.work == "winners"
        units = UNITS if wins else 0
        self._redis.stock(units)
        sample = generators.redis_benchmark(
            self._redis.port, self._redis.pids, sha=self._redis.sha, connections=point.connections,
            depth=point.depth, seconds=timing.seconds)
        check_sold(units - self._redis.units_left(), sample, wins)
        self._redis.ask("FLUSHALL")
        return sample

    def stop(self):
        self._redis.stop()


class Http:
    """A service that is asked over HTTP and has a Redis behind it."""

    shape = None

    def __init__(self, core=SERVER_CORE, redis_core=SERVER_CORE, generator_core=GENERATOR_CORE):
        self.core, self._generator_core = core, generator_core
        self.redis = Redis(self.shape, redis_core)
        self.port = free_port()
        try:
            self._server = self.start_service(fresh_folder(self.shape))
            self._server.wait_for_port(self.port)
        except CannotStart:
            self.redis.stop()
            raise

    def measure(self, point, timing, rate):
        wins = point.work == "winners"
        self.redis.stock(UNITS if wins else 0)
        self.expect("queued" if wins else "sold out")
        # Users that no earlier run has asked about.
        first_user = time.time_ns() // 1000 if wins else 0
        sample = generators.wrk(
            self.port, [*self._server.pids, *self.redis.pids], shape=self.shape, connections=point.connections,
            depth=point.depth, seconds=timing.seconds, first_user=first_user,
            core=self._generator_core)
        check_sold((UNITS if wins else 0) - self.redis.units_left(), sample, wins)
        if not wins:
            self.expect("sold out")
        self.redis.ask("FLUSHALL")
        return sample

    def expect(self, message):
        """One purchase by hand."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        self.request(connection, time.time_ns() // 1000)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        if response.status != 200 or json.loads(body)["message"] != message:
            raise BadMeasurement(f"{self.shape} answers {response.status} {body[:200]!r} instead of {message!r}")

    def stop(self):
        self._server.stop()
        self.redis.stop()


class Nginx(Http):
    """nginx with its Lua module, one worker."""

    shape = "nginx"

    def start_service(self, folder):
        text = (CONTENDERS / "nginx/nginx.conf").read_text()
        user = pwd.getpwuid(os.getuid()).pw_name + " " + grp.getgrgid(os.getgid()).gr_name
        values = {
            "MODULES": MODULES, "USER": user, "FOLDER": folder, "SCRIPTS": CONTENDERS / "nginx", "PORT": self.port,
            "REDIS_PORT": self.redis.port, "SCRIPT_SHA": self.redis.sha,
            "DESCRIPTORS": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        path = pathlib.Path(folder) / "nginx.conf"
        path.write_text(text)
        return Server("nginx", ["nginx", "-p", folder, "-c", path], folder, core=self.core)

    def request(self, connection, user):
        connection.request("GET", f"/api/seckill?activity=1&user={user}")

    def measure(self, point, timing, rate):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request("GET", "/forget")
        connection.getresponse().read()
        connection.close()
        return super().measure(point, timing, rate)


class FastApi(Http):
    """FastAPI on uvicorn with uvloop, one process."""

    shape = "fastapi"

    def start_service(self, folder):
        command = [VENV / "bin/uvicorn", "service:app", "--app-dir", CONTENDERS / "fastapi", "--host", "127.0.0.1",
                   "--port", self.port, "--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level",
                   "warning", "--backlog", 4096]
        environment = {"SECKILL_REDIS_PORT": str(self.redis.port), "SECKILL_SCRIPT": str(SCRIPT),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        return Server("fastapi", command, folder, environment, core=self.core)

    def request(self, connection, user):
        headers = {"Content-Type": "application/json", "User-Id": str(user)}
        connection.request("POST", "/api/seckill", '{"activity_id":1}', headers)
