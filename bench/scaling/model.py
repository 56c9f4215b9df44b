"""The paper model: gateways, memory, wires, Redis nodes and writers for loads that no machine here can make.

Pure arithmetic on `Inputs`; `paper` puts it into words.
"""

import math
from dataclasses import dataclass

from . import inputs as given
from .inputs import Inputs


@dataclass(frozen=True)
class Fleet:
    """Gateways for one load."""

    requests_per_s: int
    shape: str
    connections: int
    request_ns: float
    busy_cores: float
    gateways: int
    connections_each: float
    memory_bytes_each: float
    packets_in_per_s: float
    packets_out_per_s: float
    bits_in_per_s: float
    bits_out_per_s: float
    balancer_addresses: int
    return_seconds: float
    keepalive_cores: float

    @property
    def left(self) -> int:
        """Gateways that are left when one is lost."""
        return self.gateways - 1


def wire_bits(requests_per_s: float, frames_each: int, request_bytes: int, acks_each: int) -> tuple[float, ...]:
    """Packets a second in and out, bits a second in and out; `frames_each` frames share a packet."""
    packets = requests_per_s / frames_each
    packets_in = packets * (1 + acks_each)
    bytes_in = packets * (frames_each * request_bytes + given.AROUND_BYTES + acks_each * given.AROUND_BYTES)
    bytes_out = packets * (frames_each * given.REFUSAL_BYTES + given.AROUND_BYTES)
    return packets_in, packets, bytes_in * 8, bytes_out * 8


def fleet(inputs: Inputs, requests_per_s: int, is_app: bool, units: int) -> Fleet:
    """Enough gateways for the load at the headroom when one of them is lost."""
    connections = requests_per_s // given.REQUESTS_PER_USER_S if is_app else 0
    service_ns = inputs.service_ns * inputs.light_load_factor / inputs.efficiency
    left = 1
    # More connections on each make each request dearer, which asks for more gateways with fewer each: to its end.
    for _ in range(100):
        each = connections / left
        request_ns = inputs.refusal_ns_at(each) if is_app else service_ns
        busy_cores = requests_per_s * request_ns / 1e9
        needed = max(1, math.ceil(busy_cores / (given.GATEWAY_CORES * given.HEADROOM)))
        if needed <= left:
            break
        left = needed
    if not is_app:
        # As many as back ends like to have; few, whatever it is.
        connections = 64 * left
        each = 64.0
    packets_in, packets_out, bits_in, bits_out = (
        wire_bits(requests_per_s, 1, given.BUY_BYTES, 1) if is_app
        else wire_bits(requests_per_s, inputs.service_depth, given.SERVICE_BUY_BYTES, 0)
    )
    users_each = requests_per_s / given.REQUESTS_PER_USER_S / left
    memory = (inputs.fixed_bytes + each * (inputs.connection_bytes + inputs.kernel_bytes)
              + users_each * 2 * given.LIMITER_KEY_BYTES + units * inputs.winner_bytes)
    moved = connections / (left + 1)
    spare_cores = (1 - given.HEADROOM) * given.GATEWAY_CORES * left
    return Fleet(
        requests_per_s=requests_per_s,
        shape="apps" if is_app else "back ends",
        connections=connections,
        request_ns=request_ns,
        busy_cores=busy_cores,
        gateways=left + 1,
        connections_each=each,
        memory_bytes_each=memory,
        packets_in_per_s=packets_in,
        packets_out_per_s=packets_out,
        bits_in_per_s=bits_in,
        bits_out_per_s=bits_out,
        balancer_addresses=max(1, math.ceil(each / inputs.ports)),
        return_seconds=moved * inputs.client_ns / 1e9 / spare_cores,
        keepalive_cores=connections * (inputs.silent_ns_per_s + (inputs.ping_ns or 0) / given.KEEPALIVE_S) / 1e9,
    )


@dataclass(frozen=True)
class Sale:
    """What selling so many units asks of Redis and of the SQL database."""

    units: int
    aof: str
    users_per_s: int
    seconds_by_nodes: dict[int, float]
    nodes: int
    rows_per_s: int
    settle_seconds: float
    databases: int


def sale(units: int) -> Sale:
    """At the lower end of every measured range, with headroom."""
    aof = "always"
    users_per_s = given.REDIS_USERS_PER_S[aof][0]
    rows_per_s = min(given.MARIADB_ROWS_PER_S.values())
    each = users_per_s * given.HEADROOM
    return Sale(
        units=units,
        aof=aof,
        users_per_s=users_per_s,
        seconds_by_nodes={nodes: units / (each * nodes) for nodes in (1, 2, 4, 8, 16)},
        nodes=math.ceil(units / (each * given.SELL_WITHIN_S)),
        rows_per_s=rows_per_s,
        settle_seconds=units / (rows_per_s * given.HEADROOM),
        databases=math.ceil(units / (rows_per_s * given.HEADROOM * given.SETTLE_WITHIN_S)),
    )


@dataclass(frozen=True)
class Check:
    """A measured point against what the model says about it."""

    what: str
    predicted: float
    measured: float
    form: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def checks(inputs: Inputs) -> list[Check]:
    """Points that the model was not made from."""
    found = []
    for point in inputs.depth_points[1:-1]:
        depth = point["depth"]
        ns = inputs.depth_ns(depth)
        found.append(Check(f"server CPU of a refusal at depth {depth}, ns (from depths {inputs.depth_points[0]['depth']} and "
                           f"{inputs.depth_points[-1]['depth']})", ns, point["server_cpu_ns"], "{:,.0f}"))
        if depth == 16:
            found.append(Check(f"refusals/s at depth 16, the server busy for {point['server_cores_used']:.2f} of a core",
                               point["server_cores_used"] * 1e9 / ns, point["requests_per_s"], "{:,.0f}"))
    for point in inputs.memory_points:
        if point["connections"] > 10_000:
            predicted = point["servers"] * inputs.fixed_bytes + point["connections"] * inputs.connection_bytes
            found.append(Check(f"resident memory with {point['connections']:,} connections in {point['servers']} "
                               f"process{'es' if point['servers'] > 1 else ''}, MB (from 10,000 and fewer)",
                               predicted / 1e6, point["resident_with_bytes"] / 1e6, "{:,.1f}"))
    found.append(Check("server CPU of a client that comes back in the storm, µs (from churn, which also closes)",
                       inputs.churn_ns / 1e3, inputs.client_ns / 1e3, "{:,.1f}"))
    for depth in (1, 16, 64):
        row = inputs.of_bench_run("rushgate", "sold_out", 64, depth)
        if row is not None:
            found.append(Check(f"bench/run's refusals at 64 connections, depth {depth}: server CPU, ns",
                               inputs.depth_ns(depth), row["server_cpu_ns"], "{:,.0f}"))
    return found
