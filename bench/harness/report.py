"""Results as JSON for programs and as Markdown for people."""

import dataclasses
import json

from .samples import FIELDS
from .servers import SERVER_CORE
from .targets import TARGETS

NAMES = {
    "echo-epoll": "echo, epoll, 1 thread", "echo-tokio": "echo, tokio current_thread",
    "echo-tokio-multi": "echo, tokio multi_thread, 1 worker", "rushgate": "**Rushgate**",
    "nginx-lua": "nginx + Lua + Redis", "redis-script": "Redis, articles' script", "fastapi": "FastAPI + Redis",
    "sqlite-inserts": "bare SQLite inserts",
}
WORKS = {
    "echo": "echo", "sold_out": "refuse: sold out", "sold_out_no_rungs": "refuse: sold out, rungs off",
    "sold_out_service": "refuse: sold out, service connections",
    "already": "refuse: duplicate", "result": "RESULT", "activity": "ACTIVITY", "rate_limited": "refuse: rate limited",
    "winners": "winners", "winners_same_batches": "winners, as many at once as Rushgate", "mixed_sale": "mixed sale",
}
# From this share of a core on, the server was the limit and not who asks it.
BUSY = 0.9


def write(folder, run, samples):
    """latest.json and latest.md."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**run, "results": results(samples)}, indent=1, ensure_ascii=False)
    (folder / "latest.json").write_text(text + "\n", encoding="utf-8")
    (folder / "latest.md").write_text(markdown(run, samples), encoding="utf-8")


def results(samples):
    found = []
    for point in samples.points():
        row = {"contender": point.contender, "work": point.work, "connections": point.connections,
               "depth": point.depth}
        for field in FIELDS:
            value = samples.median(point, field)
            row[field] = None if value is None else round(value, 1)
        found.append({**row, "open_loop": point.open_loop})
    return found


def markdown(run, samples):
    machine, versions = run["machine"], run["versions"]
    lines = [
        "# Side by side", "",
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']} · revision {run['revision']} · "
        f"{run['date']} · {run['mode']}: medians of {run['rounds']} rounds, {run['seconds']} s each.", "",
        f"Servers run on core {SERVER_CORE}, the load generator on another. "
        + ", ".join(f"{name} {version}" for name, version in versions.items() if version) + ". "
        f"Before the run other programs kept {machine['busy_before']:.0%} of the machine busy.", "",
        *targets_table(samples), "", *deciding_table(samples), "", *points_table(samples), "",
        "CPU: user and system time of the server's processes for each request. Core: the share of its core that the "
        f"servers used; below {BUSY:.0%} in the closed loop something else was the limit, mostly the load generator. "
        "±: by how much the fastest round beats the slowest. Latencies of redis-benchmark are those of the whole "
        "pipeline, those of wrk of a batch; those of bare inserts are of a transaction.", "",
    ]
    if run["failures"]:
        lines += ["Not measured:", "", *(f"- {failure}" for failure in run["failures"]), ""]
    return "\n".join(lines)


def targets_table(samples):
    lines = ["| | measured | target | |", "|---|--:|--:|---|"]
    for target in TARGETS:
        value = target.value(samples)
        if value is None:
            continue
        verdict = "met" if target.is_met(value, target.bound) else "**not met**"
        if target.stretch and target.is_met(value, target.stretch):
            verdict = "met, stretch too"
        shown = f"{value:,.0f}" if target.under is None else f"{value:.2f}"
        lines.append(f"| {target.text} | {shown} | {target.wanted()} | {verdict} |")
    return lines if len(lines) > 2 else []


def deciding_table(samples):
    """What a refusal costs beyond the wire: less disturbed by a busy machine than rates are."""
    lines = ["| CPU of one request on app connections | echo tokio | refusal | more |", "|---|--:|--:|--:|"]
    for point in samples.points():
        if (point.contender, point.work, point.open_loop) != ("rushgate", "sold_out", False):
            continue
        echo = dataclasses.replace(point, contender="echo-tokio", work="echo")
        bare, whole = (samples.median(each, "server_cpu_ns") for each in (echo, point))
        if bare is not None and whole is not None:
            lines.append(f"| {point.connections:,} × {point.depth} | {duration(bare)} | {duration(whole)} "
                         f"| {duration(whole - bare)} |")
    return lines if len(lines) > 2 else []


def points_table(samples):
    lines = ["| contender | work | connections × depth | requests/s | ± | CPU each | core | p50 | p99 |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    order = list(NAMES), list(WORKS)

    def place(point):
        return (order[0].index(point.contender), order[1].index(point.work), point.open_loop, point.depth,
                point.connections)

    for point in sorted(samples.points(), key=place):
        rate, cpu, p50, p99 = (samples.median(point, field) for field in FIELDS)
        loop = " open loop" if point.open_loop else ""
        note = samples.note(point)
        work = WORKS[point.work] + (f" ({note})" if note else "")
        core = "" if cpu is None else f"{cpu * rate / 1e9:.0%}"
        lines.append(
            f"| {NAMES[point.contender]} | {work} | {point.connections:,} × {point.depth}{loop} "
            f"| {rate:,.0f} | {samples.spread(point):.0%} | {duration(cpu)} | {core} "
            f"| {duration(p50 and p50 * 1000)} | {duration(p99 and p99 * 1000)} |")
    return lines


def duration(ns):
    if ns is None:
        return ""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}" if ns < 1000 * size else f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"
