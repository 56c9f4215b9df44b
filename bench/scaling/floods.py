"""One flood: requests a second, and what the server's CPU spends on each."""

import time

from .gateway import Echo, Gateway, Server
from .processes import loopback, result, start_loadgen

# Sold out before anybody asks: what is measured is refusing.
SOLD_OUT_ACTIVITY = [(1, [(1, 1)])]
FIRST_REFUSED_USER = 1_000_000
WARMUP_MS = 500
# From the start of the process until 64 connections are warm.
UNTIL_WARM_S = 1.0


def sell_out(gateway: Gateway) -> None:
    """Sells the one unit of activity 1."""
    sale = start_loadgen("flood", gateway, "--connections", "1", "--requests", "1", "--warmup", "0s", "--seconds", "5")
    outcome = result(sale)["by_status"]
    if outcome != {"QUEUED": 1}:
        raise RuntimeError(f"the one unit was not sold: {outcome}")


def refusing_gateway(workers: int = 1, cores: set[int] | None = None) -> Gateway:
    """A gateway on which activity 1, SKU 1 is sold out."""
    gateway = Gateway(SOLD_OUT_ACTIVITY, workers, cores)
    try:
        sell_out(gateway)
    except BaseException:
        gateway.__exit__()
        raise
    return gateway


def flood(server: Server, connections: int, depth: int, seconds: int, rate: int | None = None,
          cores: set[int] | None = None, counts_packets: bool = False) -> dict:
    """BUYs on app connections; all of them have to be refused with SOLD_OUT (or echoed)."""
    is_echo = isinstance(server, Echo)
    arguments = ["--connections", connections, "--depth", depth, "--seconds", seconds, "--warmup", f"{WARMUP_MS}ms",
                 "--pid", server.pid, "--first-user", FIRST_REFUSED_USER]
    arguments += ["--rate", rate] if rate else []
    arguments += ["--wire", "echo"] if is_echo else []
    child = start_loadgen("flood", server, *arguments, cores=cores)
    packets = window_s = None
    if counts_packets:
        time.sleep(UNTIL_WARM_S)
        began_at, before = time.monotonic(), loopback()
        time.sleep(seconds * 0.6)
        packets, window_s = loopback()[0] - before[0], time.monotonic() - began_at
    report = result(child)
    expected = "echo" if is_echo else "SOLD_OUT"
    if set(report["by_status"]) != {expected}:
        raise RuntimeError(f"answers other than {expected}: {report['by_status']}")
    rate_achieved, cpu_ns = report["achieved_per_s"], report["server_cpu_ns"]
    found = {
        "contender": server.contender,
        "work": "echo" if is_echo else "sold_out",
        "connections": connections,
        "depth": depth,
        "requests_per_s": rate_achieved,
        "server_cpu_ns": cpu_ns,
        # 1.0: as many cores' worth of time as one core has.
        "server_cores_used": round(rate_achieved * cpu_ns / 1e9, 3),
        "generator_cpu_ns": report["generator_cpu_ns"],
        "p50_us": report["p50_us"],
        "p99_us": report["p99_us"],
        "open_loop": report["open_loop"],
    }
    if packets is not None:
        found["packets_per_request"] = round(packets / (rate_achieved * window_s), 3)
    return found


def median_of(rounds: list[dict], by: str = "server_cpu_ns") -> dict:
    """The round that is the median by one of its figures, with that figure's spread over all beside it."""
    rounds = sorted(rounds, key=lambda found: found[by])
    return rounds[len(rounds) // 2] | {"rounds": len(rounds), f"{by}_range": [rounds[0][by], rounds[-1][by]]}
