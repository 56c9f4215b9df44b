"""What the paper model starts from: measured points of scale.json, shared knowledge, and assumptions, each named."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

# Assumptions. The text names each of them.
HEADROOM = 0.65
GATEWAY_CORES = 8
REQUESTS_PER_USER_S = 1
NIC_BITS_PER_S = 25e9
EVENT_BYTES = 128
SELL_WITHIN_S = 2
SETTLE_WITHIN_S = 30
KEEPALIVE_S = 60

# Frames of protocol.md, and what TCP, IP and Ethernet put around them.
BUY_BYTES, SERVICE_BUY_BYTES, REFUSAL_BYTES = 32, 44, 24
TCP_BYTES, IP_BYTES, ETHERNET_BYTES, GAP_BYTES = 20 + 12, 20, 14 + 4, 8 + 12
AROUND_BYTES = TCP_BYTES + IP_BYTES + ETHERNET_BYTES + GAP_BYTES

# Measured on a similar two-core machine with the stores that production uses; not part of this run.
REDIS_USERS_PER_S = {"no AOF": (730_000, 880_000), "everysec": (570_000, 800_000), "always": (490_000, 680_000)}
MARIADB_ROWS_PER_S = {"rows in hundreds": 95_700, "rows in thousands": 181_000}
# rushgate.example.toml: up to so much for each key that a limit remembers; a user has two.
LIMITER_KEY_BYTES = 50


@dataclass(frozen=True)
class Inputs:
    """Everything measured, in base units."""

    revision: str
    machine: str
    is_quick: bool
    ports: int
    wake_ns: float
    frame_ns: float
    depth_points: list[dict]
    refusal_ns: float
    refusal_connections: int
    growth_ns_per_decade: float
    light_load_factor: float
    efficiency: float
    service_depth: int
    service_refusal_ns: float
    fixed_bytes: float
    connection_bytes: float
    kernel_bytes: float
    memory_points: list[dict]
    silent_ns_per_s: float
    ping_ns: float | None
    client_ns: float
    churn_ns: float
    storm_waves: list[dict]
    storm_clients: int
    storm_drops: int
    backlogs: tuple[int, int]
    packets_per_request: dict[int, float]
    winner_bytes: float
    winners_per_s: float
    side_by_side: list[dict]

    def of_bench_run(self, contender: str, work: str, connections: int, depth: int) -> dict | None:
        """A closed-loop point of `bench/run`, where that has been taken."""
        return next((row for row in self.side_by_side
                     if (row["contender"], row["work"], row["connections"], row["depth"], row["open_loop"])
                     == (contender, work, connections, depth, False) and row["server_cpu_ns"]), None)

    @property
    def service_ns(self) -> float:
        """CPU time of a refusal on service connections: `bench/run`'s, which has a million users, if it is there."""
        row = self.of_bench_run("rushgate", "sold_out_service", 64, self.service_depth)
        return row["server_cpu_ns"] if row else self.service_refusal_ns

    def refusal_ns_at(self, connections: float) -> float:
        """CPU time of one refusal on a gateway with so many connections: beyond what was measured, it goes on growing."""
        decades = max(0.0, math.log10(max(connections, 1) / self.refusal_connections))
        return (self.refusal_ns + self.growth_ns_per_decade * decades) * self.light_load_factor / self.efficiency

    def depth_ns(self, depth: int) -> float:
        """CPU time of a refusal when so many come with one wake."""
        return self.wake_ns / depth + self.frame_ns


def fitted(points: list[dict], x: str, y: str) -> tuple[float, float]:
    """Intercept and slope of a straight line through points."""
    xs, ys = [point[x] for point in points], [point[y] for point in points]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((a - x_mean) * (b - y_mean) for a, b in zip(xs, ys)) / sum((a - x_mean) ** 2 for a in xs)
    return y_mean - slope * x_mean, slope


def read(folder: Path) -> Inputs | None:
    """None while a section is missing."""
    results = json.loads((folder / "scale.json").read_text())
    sections = results["sections"]
    wanted = ("idle_memory", "idle_cpu", "storm", "churn", "refusals_by_connections", "refusals_by_depth", "cores",
              "activities", "sub_keys")
    if any(name not in sections for name in wanted):
        return None
    points = {name: sections[name]["points"] for name in wanted}
    gateway = {name: [point for point in points[name] if point["contender"] == "rushgate"]
               for name in ("idle_memory", "refusals_by_connections", "refusals_by_depth")}
    depths = sorted(gateway["refusals_by_depth"], key=lambda point: point["depth"])
    alone, batched = depths[0], depths[-1]
    # Two points, two unknowns: cost = wake / depth + frame. The depths in between are left to check it.
    wake_ns = (alone["server_cpu_ns"] - batched["server_cpu_ns"]) / (1 / alone["depth"] - 1 / batched["depth"])
    many = sorted(gateway["refusals_by_connections"], key=lambda point: point["connections"])
    below, top = many[-2], many[-1]
    growth = max(0.0, top["server_cpu_ns"] - below["server_cpu_ns"])
    memory = sorted(gateway["idle_memory"], key=lambda point: point["connections"])
    fixed, slope = fitted([point for point in memory if point["connections"] <= 10_000], "connections",
                          "resident_with_bytes")
    cores = {point["mode"]: point for point in points["cores"] if point["depth"] == 1}
    service = next(point for point in points["activities"] if point["activities"] == 1 and point["depth"] > 1)
    low, high = results["settings"]["ip_local_port_range"]
    machine = results["machine"]
    latest = folder / "latest.json"
    return Inputs(
        revision=sections["refusals_by_depth"]["revision"],
        machine=f"{machine['cpu']}, {machine['cores']} cores, Linux {results['versions']['kernel']}",
        is_quick=any(sections[name]["quick"] for name in wanted),
        ports=high - low + 1,
        wake_ns=wake_ns,
        frame_ns=alone["server_cpu_ns"] - wake_ns / alone["depth"],
        depth_points=depths,
        refusal_ns=top["server_cpu_ns"],
        refusal_connections=top["connections"],
        growth_ns_per_decade=growth / math.log10(top["connections"] / below["connections"]),
        light_load_factor=max(1.0, cores["open"]["one_core"]["server_cpu_ns"] / cores["closed"]["one_core"]["server_cpu_ns"]),
        efficiency=min(1.0, *(point["efficiency"] for point in cores.values())),
        service_depth=service["depth"],
        service_refusal_ns=service["server_cpu_ns"],
        fixed_bytes=fixed,
        connection_bytes=slope,
        kernel_bytes=max(point["kernel_bytes_per_end"] for point in memory if point["connections"] >= 19_000),
        memory_points=memory,
        silent_ns_per_s=max(0.0, points["idle_cpu"]["cores_silent"] - points["idle_cpu"]["cores_without"]) * 1e9
        / points["idle_cpu"]["connections"],
        ping_ns=points["idle_cpu"]["ping_cpu_ns"],
        client_ns=points["storm"]["server_cpu_ns_per_client"],
        churn_ns=points["churn"]["server_cpu_ns"],
        storm_waves=points["storm"]["waves"],
        storm_clients=points["storm"]["clients"],
        storm_drops=points["storm"]["kernel"]["ListenDrops"] + points["storm"]["kernel"]["TCPReqQFullDrop"],
        backlogs=(results["settings"]["somaxconn"], results["settings"]["tcp_max_syn_backlog"]),
        packets_per_request={point["depth"]: point["packets_per_request"] for point in depths},
        winner_bytes=max(0.0, points["sub_keys"][0]["resident_bytes_per_winner"]),
        winners_per_s=points["sub_keys"][0]["winners_per_s"],
        side_by_side=json.loads(latest.read_text())["results"] if latest.exists() else [],
    )
