"""Rushgate as a contender: gateways with one worker thread, sales prepared through its own commands."""

import json
import re
import sqlite3
import subprocess

from . import generators
from .errors import BadMeasurement, CannotStart
from .paths import BINARIES, WORK
from .servers import SERVER_CORE, Server, fresh_folder, on_core

SERVES = re.compile(r"rushgate serves on (\S+)")
# Every rung looks, none of them refuses.
HIGH = {"rate_per_s": 10_000_000, "burst": 100_000_000}
OFF = {"rate_per_s": 0, "burst": 0}
LIMITS = ["global", "per_ip", "per_user", "result_per_user", "per_connection", "per_activity"]
# Requests are counted, and nobody makes too many.
NEVER_TOO_MUCH = {"behaviour.per_minute": 60_000, "behaviour.burst": 1_000_000_000}
SOLD_OUT, HELD = 1, 2
UNITS = 1_000_000_000
# Who takes the units of an activity that is to be sold out.
FIRST_BUYER = 1 << 41
# The gateway that sells; its database outlives it.
WINNERS = "winners"
USERS = 1_000_000
# On the risk lists: they never ask.
LISTED, FIRST_LISTED = 100_000, 1 << 50
# Nobody asks twice within a run.
USERS_WITHOUT_END = 1 << 40


def folder_of(gateway):
    return f"rushgate-{gateway}"


class Gateway:
    """One gateway with a data folder of its own."""

    def __init__(self, name, activities, limits=None, rungs=True, more=None, listed=None, terms=None, invited=None):
        """`activities`: units of each activity, numbered from 1. `rungs`: whether those look that can be off; `listed`:
        whether others are on the risk lists, by default as `rungs` says. `more`: further settings. `terms`: whom the
        activities are for, as options of their creation; `invited`: users on the first one's allow-list."""
        self.data_dir = fresh_folder(folder_of(name)) / "data"
        for number, units in enumerate(activities, 1):
            create_activity(self.data_dir, number, units, terms)
        if invited:
            invite(self.data_dir, invited)
        if rungs if listed is None else listed:
            list_others(self.data_dir)
        settings = {
            "gateway.listen": "127.0.0.1:0", "admin.listen": "", "store.data_dir": str(self.data_dir),
            "store.synchronous": "full", "gateway.worker_threads": 1,
        }
        if rungs:
            settings |= NEVER_TOO_MUCH
        for limit in LIMITS:
            for key, value in {**(HIGH if rungs else OFF), **(limits or {}).get(limit, {})}.items():
                settings[f"limits.{limit}.{key}"] = value
        settings |= more or {}
        command = [BINARIES / "rushgate", "serve"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.server = Server("rushgate", command, self.data_dir.parent)
        self.addr = self.server.wait_for_line(SERVES).group(1)

    def flood(self, point, timing, expected, *options, **more):
        return generators.flood(
            self.addr, self.server.pids, connections=point.connections, depth=point.depth, seconds=timing.seconds,
            warmup_s=timing.warmup_s, expected=expected, options=["--data-dir", self.data_dir, *options], **more)

    def prepare(self, *options):
        """Requests that are not measured."""
        generators.flood(self.addr, self.server.pids, depth=64, seconds=60, warmup_s=0,
                         options=["--data-dir", self.data_dir, *options], connections=64)

    def stop(self):
        self.server.stop()


def sell_out(gateway):
    gateway.prepare("--activity", SOLD_OUT, "--service", "--users", 2, "--first-user", FIRST_BUYER, "--requests", 64)


def rushgate(*arguments, given=None):
    """What a command prints."""
    command = [str(BINARIES / "rushgate"), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, input=given)
    if done.returncode != 0:
        raise CannotStart(f"rushgate {' '.join(command[1:3])}: {done.stderr.strip()}")
    return done.stdout


def list_others(data_dir):
    """So that the lists are looked at: nobody who is on them asks."""
    lines = "".join(f"user:{FIRST_LISTED + nth}\n" for nth in range(LISTED))
    rushgate("risk", "import", "-", "--data-dir", data_dir, "--who", "bench", "--why", "bench", given=lines)


def invite(data_dir, users):
    """Puts users on the allow-list of activity 1."""
    lines = "".join(f"{user}\n" for user in users)
    rushgate("activity", "allow", "import", 1, "-", "--data-dir", data_dir, given=lines)


def create_activity(data_dir, number, units, terms=None):
    return json.loads(rushgate("activity", "create", "--id", number, "--name", "bench", "--sku", f"1:{units}:100",
                               "--closes", "+24h", "--data-dir", data_dir, "--json", *(terms or [])))


class Rushgate:
    """Dispatches works to gateways; those that are measured often stay up for the round."""

    def __init__(self):
        self._main = None
        self._bare = None
        self._strict = None
        self._service_users_known = False

    def measure(self, point, timing, rate):
        return getattr(self, f"_{point.work}")(point, timing, rate)

    def stop(self):
        for gateway in (self._main, self._bare, self._strict):
            if gateway:
                gateway.stop()

    def _gateway(self):
        """Activity 1 is sold out, activity 2 never ends."""
        if self._main is None:
            self._main = Gateway("main", [1, UNITS])
            sell_out(self._main)
        return self._main

    def _sold_out(self, point, timing, rate):
        return self._gateway().flood(point, timing, "SOLD_OUT", "--activity", SOLD_OUT, rate=rate)

    def _sold_out_no_rungs(self, point, timing, rate):
        """With every limit off and every list empty."""
        if self._bare is None:
            self._bare = Gateway("bare", [1], rungs=False)
            sell_out(self._bare)
        return self._bare.flood(point, timing, "SOLD_OUT", "--activity", SOLD_OUT, rate=rate)

    def _sold_out_service(self, point, timing, rate):
        gateway = self._gateway()
        users = ["--activity", SOLD_OUT, "--service", "--users", USERS]
        if not self._service_users_known:
            # Once around, so that the limiters know them all.
            gateway.prepare(*users, "--requests", USERS)
            self._service_users_known = True
        return gateway.flood(point, timing, "SOLD_OUT", *users, rate=rate)

    def _already(self, point, timing, rate):
        # Each user's first request buys; the warm-up takes that.
        return self._gateway().flood(point, timing, "ALREADY", "--activity", HELD, rate=rate)

    def _result(self, point, timing, rate):
        """Of users who hold an order."""
        gateway = self._gateway()
        gateway.prepare("--activity", HELD, "--requests", 64 * 64)
        return gateway.flood(point, timing, "OK", "--activity", HELD, "--work", "result", rate=rate)

    def _activity(self, point, timing, rate):
        return self._gateway().flood(point, timing, "OK", "--activity", HELD, "--work", "activity", rate=rate)

    def _rate_limited(self, point, timing, rate):
        if self._strict is None:
            self._strict = Gateway("strict", [1], {"per_user": {"rate_per_s": 1, "burst": 1}})
        return self._strict.flood(point, timing, "RATE_LIMITED", "--activity", SOLD_OUT, rate=rate)

    def _winners(self, point, timing, rate):
        """A fresh database each time: it grows by some hundred thousand orders."""
        gateway = Gateway(WINNERS, [UNITS])
        try:
            sample = gateway.flood(point, timing, "QUEUED", "--service", "--users", USERS_WITHOUT_END, rate=rate)
        finally:
            gateway.stop()
        return {**sample, "note": in_transactions(orders_per_transaction(gateway.data_dir))}

    def _mixed_sale(self, point, timing, rate):
        gateway = Gateway("sale", [timing.sale_users // 10])
        try:
            return generators.sale(gateway.addr, gateway.server.pids, gateway.data_dir, users=timing.sale_users,
                                   connections=point.connections, in_flight=point.depth)
        finally:
            gateway.stop()


def orders_per_transaction(data_dir):
    """All orders of a transaction have its time; two transactions in one millisecond are rare."""
    database = sqlite3.connect(f"file:{data_dir / 'rushgate.db'}?mode=ro", uri=True)
    try:
        orders, transactions = database.execute(
            "SELECT count(*), count(DISTINCT created_at_ms) FROM orders").fetchone()
    finally:
        database.close()
    return max(1, round(orders / max(1, transactions)))


def in_transactions(orders):
    return f"{orders:,} in a transaction"


class Inserts:
    """The rows and transactions of winners, without a gateway."""

    def measure(self, point, timing, rate):
        batch = point.depth
        if point.work == "winners_same_batches":
            batch = orders_per_transaction(WORK / folder_of(WINNERS) / "data")
        folder = fresh_folder("inserts")
        create_activity(folder, 1, UNITS)
        # It is the server: core 0.
        command = on_core(SERVER_CORE, [
            BINARIES / "rushgate-inserts", "--data-dir", folder, "--batch", batch, "--seconds", timing.seconds,
            "--warmup-ms", round(timing.warmup_s * 1000)])
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise BadMeasurement(f"rushgate-inserts: {done.stderr.strip()}")
        told = json.loads(done.stdout)
        sample = generators.sample(told["rows_per_s"], told["cpu_ns"], told["p50_us"], told["p99_us"],
                                   told["rows"])
        return {**sample, "note": in_transactions(batch)}

    def stop(self):
        pass
