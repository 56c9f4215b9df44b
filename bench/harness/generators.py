"""Load generators, on core 1 unless told otherwise: one call is one measurement. Times in microseconds, CPU in nanoseconds per request."""

import csv
import io
import json
import subprocess

from .errors import BadMeasurement
from .paths import BINARIES, CONTENDERS
from .servers import GENERATOR_CORE, cpu_ns, on_core

# Of all answers, so many have to be what the work is about.
EXPECTED_SHARE = 0.99
# The most that redis-benchmark takes is 2³¹ − 1; so many that hardly one comes twice.
USERS = 2_000_000_000


def flood(addr, pids, *, connections, depth, seconds, warmup_s=0.5, rate=None, expected=None, options=(), core=GENERATOR_CORE):
    """rushgate-loadgen flood. `expected`: the outcome that the work is about."""
    command = [BINARIES / "rushgate-loadgen", "flood", "--json", "--addr", addr, "--connections", connections,
               "--depth", depth, "--seconds", seconds, "--warmup", f"{round(warmup_s * 1000)}ms",
               "--pid", ",".join(map(str, pids)), *options]
    if rate is not None:
        command += ["--rate", rate]
    told = json.loads(run(command, core))
    answered = told["answered"]
    if expected and told["by_status"].get(expected, 0) < EXPECTED_SHARE * answered:
        raise BadMeasurement(f"the answers are not {expected} but {told['by_status']}")
    return sample(told["achieved_per_s"], told["server_cpu_ns"], told["p50_us"], told["p99_us"], answered)


def wrk(port, pids, *, shape, connections, depth, seconds, warmup_s=1, first_user=0, core=GENERATOR_CORE):
    """wrk with our script; a run before that warms up."""
    def run_for(for_s, first):
        out = run(["wrk", "-t", 1, "-c", connections, "-d", f"{for_s}s", "--timeout", "10s", "--latency",
                    "-s", CONTENDERS / "wrk/seckill.lua", f"http://127.0.0.1:{port}", "--", shape, depth, first], core)
        line = next((line for line in out.splitlines() if line.startswith("harness ")), None)
        if line is None:
            raise BadMeasurement(f"wrk gives no figures: {out[-300:]}")
        return json.loads(line.removeprefix("harness "))

    run_for(warmup_s, first_user)
    before = cpu_ns(pids)
    told = run_for(seconds, first_user and first_user + 100_000_000)
    used = cpu_ns(pids) - before
    failed = {name: told[name] for name in ("connect", "read", "write", "status", "timeout") if told[name]}
    if failed or not told["requests"]:
        raise BadMeasurement(f"wrk counts errors: {failed or 'no answer at all'}")
    requests = told["requests"]
    return sample(requests * 1e6 / told["duration_us"], used / requests, told["p50_us"], told["p99_us"],
                  requests)


def redis_benchmark(port, pids, *, sha, connections, depth, seconds):
    """redis-benchmark, which runs so many requests, not so long: a short run tells how many."""
    def run_times(requests):
        out = run(["redis-benchmark", "-p", port, "-c", connections, "-n", requests, "-P", depth,
                    "-r", USERS, "--csv", "EVALSHA", sha, 2, "seckill:stock:1",
                    "seckill:bought:1:__rand_int__"])
        rows = list(csv.DictReader(io.StringIO(out)))
        if not rows or "rps" not in rows[0]:
            raise BadMeasurement(f"redis-benchmark gives no figures: {out[-300:]}")
        return {name: float(value) for name, value in rows[0].items() if name != "test"}

    per_s = run_times(20_000 * min(depth, 16))["rps"]
    requests = max(10_000, int(per_s * seconds))
    before = cpu_ns(pids)
    told = run_times(requests)
    used = cpu_ns(pids) - before
    return sample(told["rps"], used / requests, told["p50_latency_ms"] * 1000, told["p99_latency_ms"] * 1000,
                  requests)


def sale(addr, pids, data_dir, *, users, connections, in_flight):
    """rushgate-loadgen sale: buyers who come back and ask again, and an audit at the end."""
    before = cpu_ns(pids)
    told = json.loads(run([
        BINARIES / "rushgate-loadgen", "sale", "--json", "--addr", addr, "--data-dir", data_dir, "--users", users,
        "--connections", connections, "--service", "--in-flight", in_flight]))
    used = cpu_ns(pids) - before
    requests = told["requests_per_s"] * told["seconds"]
    return sample(told["requests_per_s"], used / requests, told["p50_us"], told["p99_us"], round(requests))


def sample(requests_per_s, server_cpu_ns, p50_us, p99_us, answered):
    return {"requests_per_s": requests_per_s, "server_cpu_ns": server_cpu_ns, "p50_us": p50_us, "p99_us": p99_us,
            "answered": answered}


def run(command, core=GENERATOR_CORE):
    """What a command that has to go well prints."""
    try:
        done = subprocess.run(on_core(core, command), check=False, capture_output=True, text=True, timeout=180)
    except subprocess.TimeoutExpired:
        raise BadMeasurement(f"{command[0]} has not ended after 180 s") from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr.strip() or done.stdout.strip())[-600:]
    raise BadMeasurement(f"{command[0]} ended with code {done.returncode}: {said}")
