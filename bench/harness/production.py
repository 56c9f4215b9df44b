"""bench/production: what the production form costs, each part against the bare work it consists of."""

import argparse
import contextlib
import datetime
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from . import generators, install, machine, others
from .errors import BadMeasurement, CannotStart
from .paths import BENCH, BINARIES, RESULTS
from .servers import Server, fresh_folder
from .plan import Point, Timing
from .shop import GATEWAY_CORE, LOAD_CORE, PERSISTENCE, REDIS_CORE, Cpu, MariaDb, Redis, Shop, metrics, resident_bytes

UNITS = 1_000_000_000
USERS_WITHOUT_END = 1 << 40
CONNECTIONS, DEPTH = 64, 64
DELAYS_MS = (0, 5, 40)
LATENCY_RATES = (1_000, 5_000, 20_000, 50_000)
SETTLE_TIMEOUT_S = 180
PORT = re.compile(r"127\.0\.0\.1:(\d+)")


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        prog="bench/production", description="Winners through Redis, refusals' commands, the writer into MariaDB, distance.",
        epilog="exit codes: 0 measured, 1 something answered wrongly, 2 something is missing or does not start")
    parser.add_argument("--seconds", type=int, default=4, metavar="N", help="of each measurement [4]")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each measurement [3]")
    parser.add_argument("--doomed", type=int, default=1_000_000, metavar="N", help="requests that cannot win [1000000]")
    parser.add_argument("--backlog", type=int, default=1_000_000, metavar="N", help="orders for the writer [1000000]")
    parser.add_argument("--out", type=pathlib.Path, default=RESULTS, metavar="DIR", help="[bench/results]")
    arguments = parser.parse_args()
    try:
        install.install_production()
        results = run(arguments)
    except (CannotStart, BadMeasurement) as error:
        print(f"bench/production: {error}", file=sys.stderr)
        return 2 if isinstance(error, CannotStart) else 1
    except KeyboardInterrupt:
        return 130
    write(arguments.out, results)
    return 0


def run(arguments):
    busy = machine.busy()
    results = {
        "machine": {**machine.machine(), "busy_before": busy}, "revision": machine.revision(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "rounds": arguments.rounds, "seconds": arguments.seconds,
    }
    with contextlib.closing(_Stoppable(MariaDb())) as mariadb:
        results["winners"] = [winners(mariadb.it, kind, arguments) for kind in PERSISTENCE]
        results["nginx_per_s"] = nginx(arguments)
        results["doomed"] = doomed(mariadb.it, arguments)
        results["distance"] = [distance(mariadb.it, delay_ms, arguments) for delay_ms in DELAYS_MS]
        results["writer"] = writer(mariadb.it, arguments)
    return results


class _Stoppable:
    def __init__(self, it):
        self.it = it

    def close(self):
        self.it.stop()


@contextlib.contextmanager
def open_shop(mariadb, persistence, units, through=None):
    """A fresh installation with one activity loaded and open, its gateway, and no writer running."""
    mariadb.sql("DROP DATABASE rushgate; CREATE DATABASE rushgate")
    with contextlib.ExitStack() as stack:
        redis = Redis(persistence)
        stack.callback(redis.stop)
        port = None
        if through is not None:
            link = Server("link", [BINARIES / "rushgate-link", "--upstream", f"127.0.0.1:{redis.port}", "--delay", f"{through / 2}ms"],
                          fresh_folder("link"), core=GATEWAY_CORE)
            stack.callback(link.stop)
            port = int(link.wait_for_line(PORT).group(1))
        shop = Shop(redis, mariadb, port)
        loader, _ = shop.writer()
        gateway, addr, admin = shop.gateway()
        stack.callback(gateway.stop)
        shop.activity(1, units)
        _wait(lambda: not shop.command("activity", "show", 1)["skus"][0]["pending_loads"], "the stock is not loaded", 30)
        loader.stop()
        time.sleep(2.5)
        yield shop, redis, gateway, addr, admin


def flood(shop, addr, pids, seconds, expected, users, **more):
    options = ["--activity", 1, "--service", "--users", users, *shop.token_options]
    return generators.flood(addr, pids, connections=CONNECTIONS, depth=DEPTH, seconds=seconds, expected=expected,
                            options=options, core=LOAD_CORE, **more)


def winners(mariadb, persistence, arguments):
    """Closed loop, then open loop at half of that; Redis's CPU beside the bare script's at the same batch size."""
    rounds = []
    with open_shop(mariadb, persistence, UNITS) as (shop, redis, gateway, addr, _):
        for number in range(arguments.rounds):
            first = ["--first-user", (number + 1) << 41]
            calls, cpu = redis.function_calls(), Cpu(redis=redis.pids, gateway=gateway.pids)
            options = ["--activity", 1, "--service", "--users", USERS_WITHOUT_END, *first, *shop.token_options]
            sample = generators.flood(addr, gateway.pids, connections=CONNECTIONS, depth=DEPTH, seconds=arguments.seconds,
                                      warmup_s=0.001, expected="QUEUED", options=options, core=LOAD_CORE)
            each = cpu.per(sample["answered"])
            batch = sample["answered"] / max(1, redis.function_calls() - calls)
            rounds.append({"per_s": sample["requests_per_s"], "redis_us": each["redis"], "gateway_us": each["gateway"],
                           "batch": batch, "answered": sample["answered"], "p50_us": sample["p50_us"], "p99_us": sample["p99_us"]})
            say(f"winners, {persistence}: {sample['requests_per_s']:,.0f}/s, Redis {each['redis']:.2f} µs, gateway "
                f"{each['gateway']:.2f} µs, {batch:.0f} a call")
        middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        # What a mark costs grows with the marks that are there, so of this one the mean.
        middle["redis_us"] = statistics.fmean(one["redis_us"] for one in rounds)
        middle["marks"] = sum(one["answered"] for one in rounds)
        half = int(middle["per_s"] / 2)
        rates = [*LATENCY_RATES, half] if persistence == "everysec" else [half]
        options = ["--activity", 1, "--service", "--users", USERS_WITHOUT_END, "--first-user", 1 << 50, *shop.token_options]
        latencies = []
        for rate in rates:
            options[options.index("--first-user") + 1] = (rate + 1) << 44
            one = generators.flood(addr, gateway.pids, connections=CONNECTIONS, depth=DEPTH, seconds=arguments.seconds,
                                   rate=rate, expected="QUEUED", options=options, core=LOAD_CORE)
            latencies.append({"per_s": rate, "p50_us": one["p50_us"], "p99_us": one["p99_us"]})
        open_loop = latencies[-1]
    bare = bare_script(persistence, round(middle["batch"]), middle["marks"])
    say(f"winners, {persistence}, open loop at {half:,}/s: p50 {open_loop['p50_us']:.0f} µs, p99 {open_loop['p99_us']:.0f} µs; "
        f"bare script {bare:.2f} µs")
    return {"persistence": persistence, **middle, "bare_script_us": bare, "half_per_s": half,
            "half_p50_us": open_loop["p50_us"], "half_p99_us": open_loop["p99_us"],
            "latencies": latencies}


def bare_script(persistence, batch, marks):
    """Redis's CPU an item of the batch script without any rule, called back to back in a Redis that is as empty at first and
    as full at the end."""
    done = subprocess.run(
        [BENCH / "reserve-script", "--batches", str(batch), "--items", str(marks), "--rounds", "1",
         "--persistence", persistence, "--json"], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise BadMeasurement(f"bench/reserve-script: {done.stderr[-300:]}")
    return json.loads(done.stdout)[0]["bare_us"]


def nginx(arguments):
    """The same with nginx + Lua + Redis: the service where the gateway runs, its Redis and the load where theirs do."""
    shop = others.Nginx(core=GATEWAY_CORE, redis_core=REDIS_CORE, generator_core=LOAD_CORE)
    try:
        timing = Timing(arguments.rounds, arguments.seconds, 0.5, 0)
        point = Point("nginx-lua", "winners", CONNECTIONS, DEPTH)
        rates = [shop.measure(point, timing, None)["requests_per_s"] for _ in range(arguments.rounds)]
    finally:
        shop.stop()
    say(f"winners, nginx + Lua + Redis: {statistics.median(rates):,.0f}/s")
    return statistics.median(rates)


def doomed(mariadb, arguments):
    """Everybody asks for a few units: how many commands does Redis see?"""
    units = 1_000
    with open_shop(mariadb, "everysec", units) as (shop, redis, gateway, addr, _):
        before, began = redis.commands(), time.monotonic()
        told = json.loads(generators.run([
            BINARIES / "rushgate-loadgen", "flood", "--json", "--addr", addr, "--connections", CONNECTIONS, "--depth", 16,
            "--activity", 1, "--service", "--users", arguments.doomed, "--requests", arguments.doomed, "--warmup", "0ms",
            "--pid", ",".join(map(str, gateway.pids)), *shop.token_options], LOAD_CORE))
        seconds = time.monotonic() - began
        commands = redis.commands() - before
    queued = told["by_status"].get("QUEUED", 0)
    if queued != units:
        raise BadMeasurement(f"{queued} were told QUEUED, {units} units are there: {told['by_status']}")
    allowed = 2 * units + 50 * seconds
    say(f"{arguments.doomed:,} requests for {units} units in {seconds:.1f} s: {commands:,} commands, at most {allowed:,.0f}")
    return {"requests": arguments.doomed, "units": units, "seconds": seconds, "commands": commands, "allowed": allowed,
            "per_s": told["achieved_per_s"]}


def distance(mariadb, delay_ms, arguments):
    """The round trip between gateway and Redis grows: refusals stay, winners' throughput falls."""
    with open_shop(mariadb, "everysec", UNITS, through=delay_ms) as (shop, _, gateway, addr, _):
        sample = flood(shop, addr, gateway.pids, arguments.seconds, "QUEUED", USERS_WITHOUT_END)
    with open_shop(mariadb, "everysec", 1, through=delay_ms) as (shop, _, gateway, addr, _):
        generators.flood(addr, gateway.pids, connections=1, depth=1, seconds=10, warmup_s=0,
                         options=["--activity", 1, "--service", "--users", 2, "--first-user", 1 << 41, "--requests", 8,
                                  *shop.token_options], core=LOAD_CORE)
        refusals = flood(shop, addr, gateway.pids, arguments.seconds, "SOLD_OUT", 1_000_000)
    say(f"{delay_ms} ms between gateway and Redis: {sample['requests_per_s']:,.0f} winners/s, p50 {sample['p50_us']:,.0f} µs; "
        f"{refusals['requests_per_s']:,.0f} refusals/s")
    return {"delay_ms": delay_ms, "winners_per_s": sample["requests_per_s"], "p50_us": sample["p50_us"],
            "p99_us": sample["p99_us"], "refusals_per_s": refusals["requests_per_s"]}


def writer(mariadb, arguments):
    """A backlog drains, against bare inserts of the same rows in transactions of the same size."""
    with open_shop(mariadb, "everysec", UNITS) as (shop, redis, gateway, addr, _):
        rows = 0
        while rows < arguments.backlog:
            options = ["--activity", 1, "--service", "--users", USERS_WITHOUT_END, "--first-user", (rows + 1) << 41,
                       "--requests", min(500_000, arguments.backlog - rows), *shop.token_options]
            sample = generators.flood(addr, gateway.pids, connections=CONNECTIONS, depth=DEPTH, seconds=60, warmup_s=0,
                                      expected="QUEUED", options=options, core=LOAD_CORE)
            rows += sample["answered"]
        began = time.monotonic()
        server, admin = shop.writer()
        cpu, resident, seen = Cpu(writer=server.pids, mariadb=mariadb.pids), [], 0
        while seen < rows:
            if time.monotonic() - began > SETTLE_TIMEOUT_S:
                raise BadMeasurement(f"{seen:,} of {rows:,} orders settled after {SETTLE_TIMEOUT_S} s")
            time.sleep(0.2)
            seen = int(metrics(admin)["rushgate_writer_rows_settled_total"])
            resident.append(resident_bytes(server.pids))
        seconds, each = time.monotonic() - began, cpu.per(rows)
        batches = metrics(admin)["rushgate_writer_batches_total"]
        server.stop()
        if mariadb.orders() != rows:
            raise BadMeasurement(f"{mariadb.orders():,} orders in SQL, {rows:,} were told QUEUED")
    batch = round(rows / batches)
    bare = bare_inserts(mariadb, min(rows, 300_000), batch)
    quarter = len(resident) // 4 or 1
    say(f"writer: {rows:,} orders in {seconds:.1f} s = {rows / seconds:,.0f}/s in batches of {batch}; bare {bare:,.0f}/s; "
        f"resident {max(resident) / 2**20:.0f} MiB")
    return {"rows": rows, "per_s": rows / seconds, "batch": batch, "bare_per_s": bare, "writer_us": each["writer"],
            "mariadb_us": each["mariadb"], "resident_first_quarter": max(resident[:quarter]), "resident_max": max(resident)}


def bare_inserts(mariadb, rows, batch):
    """Multi-row inserts and the stock's update, one client, the same table with its keys."""
    mariadb.sql("USE rushgate; DROP TABLE IF EXISTS bare_orders, bare_stock; CREATE TABLE bare_orders LIKE orders;"
                "CREATE TABLE bare_stock LIKE sku_stock; INSERT INTO bare_stock VALUES (1, 1, 2000000000, 0, 0);")
    statements = ["USE rushgate;"]
    for first in range(1, rows + 1, batch):
        numbers = range(first, min(first + batch, rows + 1))
        values = ",".join(f"({(1 << 36) + n},1,{n},1,1,1,2,1,{n % 16},1800000000000,1800000000000)" for n in numbers)
        statements.append(
            "BEGIN; INSERT INTO bare_orders (number, activity, user, attempt, sku, quantity, state, source, shard, pay_by_ms, "
            f"created_at_ms) VALUES {values}; UPDATE bare_stock SET available = available - {len(numbers)}, "
            f"sold = sold + {len(numbers)}, version = version + 1 WHERE activity = 1 AND sku = 1; COMMIT;")
    text = "\n".join(statements)
    began = time.monotonic()
    mariadb.sql(text)
    return rows / (time.monotonic() - began)


def _wait(done, complaint, seconds):
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise BadMeasurement(f"{complaint} after {seconds} s")
        time.sleep(0.1)


def say(line):
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def write(folder, results):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "production.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "production.md").write_text(markdown(results), encoding="utf-8")
    print(markdown(results))


def markdown(results):
    about, doom, settle = results["machine"], results["doomed"], results["writer"]
    lines = [
        "# The production form", "",
        f"{about['cpu']}, {about['cores']} cores, Linux {about['kernel']} · revision {results['revision']} · {results['date']} · "
        f"medians of {results['rounds']} rounds of {results['seconds']} s. Redis and the load generator on core 0, gateway, writer "
        f"and MariaDB on core 1; {CONNECTIONS} service connections, {DEPTH} in flight on each. Before the run other programs kept "
        f"{about['busy_before']:.0%} of the machine busy.", "",
        "## Winners through Redis", "",
        "| appendonly | winners/s | a call | Redis CPU | bare script | ratio | of the bare rate | gateway CPU | half of it: p50 | p99 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for one in results["winners"]:
        bare_rate = 1e6 / one["bare_script_us"]
        lines.append(
            f"| {one['persistence']} | {one['per_s']:,.0f} | {one['batch']:.0f} | {one['redis_us']:.2f} µs | "
            f"{one['bare_script_us']:.2f} µs | {one['redis_us'] / one['bare_script_us']:.2f} | {one['per_s'] / bare_rate:.2f} | "
            f"{one['gateway_us']:.2f} µs | {one['half_p50_us']:,.0f} µs | {one['half_p99_us']:,.0f} µs |")
    everysec = next(one for one in results["winners"] if one["persistence"] == "everysec")
    lines += ["", f"The bare script runs in a Redis that fills with as many marks. nginx + Lua + Redis without persistence, on the same cores: "
              f"{results['nginx_per_s']:,.0f} winners/s; with everysec Rushgate's are {everysec['per_s'] / results['nginx_per_s']:.1f} times "
              "as many.", "", "### How long a winner waits (everysec, open loop)", "", "| winners/s | p50 | p99 |", "|--:|--:|--:|"]
    lines += [f"| {one['per_s']:,} | {one['p50_us']:,.0f} µs | {one['p99_us']:,.0f} µs |" for one in everysec["latencies"]]
    lines += ["", "## A million who cannot win", "",
              f"{doom['requests']:,} requests for {doom['units']:,} units in {doom['seconds']:.1f} s ({doom['per_s']:,.0f}/s): Redis "
              f"executed {doom['commands']:,} commands; 2 × units + 50 a second are {doom['allowed']:,.0f}.", "",
              "## Distance between gateway and Redis", "",
              "| round trip | winners/s | p50 | p99 | refusals/s |", "|--:|--:|--:|--:|--:|"]
    for one in results["distance"]:
        lines.append(f"| {one['delay_ms']} ms | {one['winners_per_s']:,.0f} | {one['p50_us'] / 1000:,.1f} ms | "
                     f"{one['p99_us'] / 1000:,.1f} ms | {one['refusals_per_s']:,.0f} |")
    lines += ["", "## The writer into MariaDB, durable defaults", "",
              f"A backlog of {settle['rows']:,} orders: {settle['per_s']:,.0f} rows/s in transactions of {settle['batch']}; bare multi-row "
              f"inserts of the same rows and transactions {settle['bare_per_s']:,.0f} rows/s: {settle['per_s'] / settle['bare_per_s']:.2f}. "
              f"CPU a row: writer {settle['writer_us']:.1f} µs, MariaDB {settle['mariadb_us']:.1f} µs. Resident memory of the writer: "
              f"{settle['resident_first_quarter'] / 2**20:.0f} MiB in the first quarter, {settle['resident_max'] / 2**20:.0f} MiB at most.", ""]
    return "\n".join(lines)
