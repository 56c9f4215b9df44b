"""What connections cost: memory of idle ones, CPU time of silence and of keep-alive, a storm of them, and churn."""

import time
from contextlib import ExitStack

from .floods import refusing_gateway
from .gateway import CONNECTIONS_MAX, Floor, Gateway, Server
from .preparation import say
from .processes import kernel_bytes, result, start_loadgen, start_module, tcp_counters, wait_until

OPEN_TIMEOUT_S = 180
# After the last connection is accepted, its handshake and what the allocator does about it.
SETTLE_S = 1.5
STORM_CLIENTS = 15_000
IDLE_CPU_CONNECTIONS = 19_000
# The gateway's default; the load generator sends a PING each third of it.
KEEPALIVE_S = 60


def hold(server: Server, connections: int, seconds: int):
    """Starts who opens and holds connections."""
    if isinstance(server, Floor):
        return start_module("hold", {"addr": server.addr, "connections": connections, "seconds": seconds})
    return start_loadgen("idle", server, "--connections", connections, "--seconds", seconds)


def memory_at(make, connections: int, servers_count: int) -> dict:
    """Resident memory of fresh servers without and with their share of so many connections."""
    share = connections // servers_count
    with ExitStack() as stack:
        servers = [stack.enter_context(make()) for _ in range(servers_count)]
        time.sleep(SETTLE_S)
        before = sum(server.resident_bytes() for server in servers)
        kernel_before = kernel_bytes()
        descriptors = [server.descriptors() for server in servers]
        # Opening takes each of them as long as the others: all still hold when the last is through.
        holders = [hold(server, share, 6 + connections // 5_000) for server in servers]
        wait_until(
            f"{connections} connections stand",
            OPEN_TIMEOUT_S,
            lambda: all(server.descriptors() >= base + share for server, base in zip(servers, descriptors)),
            every_s=0.2,
        )
        time.sleep(SETTLE_S)
        with_them = sum(server.resident_bytes() for server in servers)
        kernel_with = kernel_bytes()
        alive = sum(result(holder)["alive"] for holder in holders)
    if alive != share * servers_count:
        raise RuntimeError(f"{alive} of {connections} connections stood to the end")
    return {
        "connections": alive,
        "servers": servers_count,
        "resident_before_bytes": before,
        "resident_with_bytes": with_them,
        "bytes_per_connection": round((with_them - before) / alive, 1),
        # Both ends are on this machine; of sockets, files and epoll entries each end has the same.
        "kernel_bytes_per_end": round((kernel_with - kernel_before) / alive / 2, 1),
    }


def idle_memory(quick: bool) -> list[dict]:
    """Memory against connections, for the gateway and for a bare tokio task."""
    counts = [1_000, 5_000, 19_000, 38_000] if quick else [1_000, 2_000, 5_000, 10_000, 19_000, 38_000]
    found = []
    for contender, make in ((Gateway.contender, lambda: Gateway([])), (Floor.contender, Floor)):
        for count in counts:
            servers = -(-count // CONNECTIONS_MAX)
            point = {"contender": contender} | memory_at(make, count, servers)
            say(f"  {contender}, {count} idle connections: {point['bytes_per_connection']:.0f} B each")
            found.append(point)
    return found


def idle_cpu(quick: bool) -> dict:
    """CPU time of a gateway whose clients are silent, and of one round of keep-alive."""
    count, silence_s = IDLE_CPU_CONNECTIONS, 4 if quick else 12
    keepalive_s = KEEPALIVE_S // 3
    with Gateway([]) as gateway:
        time.sleep(SETTLE_S)
        alone = share_of_core(gateway, 4)
        base = gateway.descriptors()
        holder = hold(gateway, count, 8 if quick else keepalive_s + 14)
        wait_until(f"{count} connections stand", OPEN_TIMEOUT_S, lambda: gateway.descriptors() >= base + count, 0.2)
        time.sleep(SETTLE_S)
        silent = share_of_core(gateway, silence_s)
        found = {"connections": count, "cores_without": alone, "cores_silent": silent, "ping_cpu_ns": None}
        if not quick:
            # The rest of the time until after the one PING of each.
            began_at, window_s = gateway.cpu_ns(), keepalive_s + 4 - silence_s
            time.sleep(window_s)
            used_ns = gateway.cpu_ns() - began_at - silent * window_s * 1e9
            found["ping_cpu_ns"] = round(used_ns / count, 1)
        result(holder)
    return found


def share_of_core(server: Server, seconds: int) -> float:
    """Cores' worth of time that a server uses."""
    began_at, before = time.monotonic(), server.cpu_ns()
    time.sleep(seconds)
    return round((server.cpu_ns() - before) / (time.monotonic() - began_at) / 1e9, 6)


def storm(quick: bool) -> dict:
    """Everybody connects at once, is cut, comes back at once, and once more with jitter."""
    del quick
    with refusing_gateway() as gateway:
        before, cpu_before = tcp_counters(), gateway.cpu_ns()
        storming = start_loadgen("storm", gateway, "--clients", STORM_CLIENTS, "--work", "buy", "--first-user", 1_000)
        found = result(storming, may_complain=True)
        used_ns = gateway.cpu_ns() - cpu_before
        found["kernel"] = {name: after - before[name] for name, after in tcp_counters().items()}
        refused = gateway.metrics().get('rushgate_connections_ended_total{why="refused"}', 0)
        found["refused_by_gateway"] = refused
    served = sum(wave["served"] for wave in found["waves"])
    found["server_cpu_ns_per_client"] = round(used_ns / max(served, 1))
    slowest = max(wave["seconds"] for wave in found["waves"] if not wave["jitter"])
    errors = sum(wave["errors"] for wave in found["waves"])
    say(f"  storm: all of {STORM_CLIENTS} served within {slowest:.2f} s, {errors} failed attempts")
    return found


def churn(quick: bool) -> dict:
    """Connect, HELLO, AUTH, BUY (refused), close; over and over."""
    with refusing_gateway() as gateway:
        before = gateway.cpu_ns()
        arguments = ("--connections", 64, "--seconds", 3 if quick else 10, "--first-user", 1_000)
        found = result(start_loadgen("churn", gateway, *arguments))
        found["server_cpu_ns"] = round((gateway.cpu_ns() - before) / found["answered"])
    say(f"  churn: {found['rounds_per_s']:.0f} rounds/s, {found['server_cpu_ns'] / 1000:.1f} µs of server CPU each")
    return found
