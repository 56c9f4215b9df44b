"""bench/paper-model.md: the model in words. Every number in it is computed from the results that lie beside it."""

from pathlib import Path

from . import inputs as given
from .inputs import Inputs, read
from .model import Fleet, Sale, checks, fleet, sale
from .preparation import ROOT

FILE = ROOT / "bench" / "paper-model.md"
LOADS = (1_000_000, 10_000_000)
UNITS = 1_000_000


def write(results: Path) -> list[Path]:
    """Writes it; nothing while a section has not been measured."""
    inputs = read(results)
    if inputs is None:
        return []
    fleets = [fleet(inputs, load, is_app, UNITS) for is_app in (True, False) for load in LOADS]
    parts = (head(inputs), inputs_text(inputs), traffic(), gateways(inputs, fleets), arithmetic(inputs, fleets[0]),
             stores(inputs, sale(UNITS), fleets), check(inputs), limits(inputs))
    FILE.write_text("\n".join(parts))
    return [FILE]


def table(header: list[str], rows: list[list[str]]) -> str:
    """Markdown; the first column is text, the others are numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def head(inputs: Inputs) -> str:
    quick = "\n**Made from a quick run: orders of magnitude, not figures.**\n" if inputs.is_quick else ""
    return f"""# A paper model: one million and ten million requests a second
What no machine here can make, extrapolated from what was measured. `bench/scale` writes this page from
[results/scale.json](results/scale.json) and, as far as it is there, results/latest.json of `bench/run`; no number in it is typed by hand. Measured on {inputs.machine}, loopback,
revision {inputs.revision[:10]}.
{quick}"""


def inputs_text(inputs: Inputs) -> str:
    depths = f"measured: depths {inputs.depth_points[0]['depth']} and {inputs.depth_points[-1]['depth']}"
    ping = "not measured in a quick run, taken as 0" if inputs.ping_ns is None else f"{inputs.ping_ns / 1e3:.1f} µs"
    redis = ", ".join(f"{aof} {low // 1000}–{high // 1000} k users/s" for aof, (low, high) in given.REDIS_USERS_PER_S.items())
    rows_per_s = sorted(given.MARIADB_ROWS_PER_S.values())
    rows = [
        [f"a refusal, one in flight on each of {inputs.refusal_connections:,} connections",
         f"{inputs.refusal_ns / 1e3:.2f} µs of CPU", "measured"],
        ["… more for each tenfold of connections", f"{inputs.growth_ns_per_decade / 1e3:.2f} µs",
         "measured (last two points), extrapolated beyond"],
        ["… at half of the maximum load, where wakes find less", f"× {inputs.light_load_factor:.2f}",
         "measured (open against closed loop)"],
        ["… on two cores instead of one (efficiency)", f"÷ {inputs.efficiency:.2f}",
         "measured; taken for any number of cores"],
        [f"a refusal on service connections, {inputs.service_depth} together",
         f"{inputs.service_ns:,.0f} ns of CPU", "measured"],
        ["a wake (epoll, read, write)", f"{inputs.wake_ns / 1e3:.2f} µs", depths],
        ["a frame in it", f"{inputs.frame_ns:,.0f} ns", depths],
        ["a gateway without connections", f"{inputs.fixed_bytes / 1e6:.0f} MB", "measured"],
        ["an idle connection, in the gateway", f"{inputs.connection_bytes:,.0f} B", "measured"],
        ["an idle connection, in its kernel", f"{inputs.kernel_bytes:,.0f} B", "measured (slab, both ends, halved)"],
        ["a silent connection", f"{inputs.silent_ns_per_s / 1e3:.2f} µs of CPU a second", "measured"],
        ["a keep-alive PING", ping, f"measured; one each {given.KEEPALIVE_S} s"],
        ["a client that connects, authenticates and asks", f"{inputs.client_ns / 1e3:.1f} µs of CPU", "measured (storm)"],
        ["a winner, in the memory of every gateway", f"{inputs.winner_bytes:,.0f} B",
         "measured (the embedded store's cache included)"],
        ["a user that limits remember", f"2 × {given.LIMITER_KEY_BYTES} B", "stated in rushgate.example.toml"],
        ["Redis, a script for 64 users: mark, deduct, record", redis, "measured earlier on a similar machine"],
        ["MariaDB, unique key and stock in one transaction",
         f"{rows_per_s[0] / 1e3:.0f}–{rows_per_s[-1] / 1e3:.0f} k rows/s", "measured earlier on a similar machine, one client"],
        ["used of every machine at most", f"{given.HEADROOM:.0%}", "assumed"],
        ["cores of a gateway", f"{given.GATEWAY_CORES}", "assumed; of the kind measured here"],
        ["asks of one user at the opening", f"{given.REQUESTS_PER_USER_S} a second", "assumed"],
        ["an order's event in a feed", f"{given.EVENT_BYTES} B", "assumed"],
    ]
    return "## What goes in\n" + table(["", "value", "where it is from"], rows)


def traffic() -> str:
    around = given.AROUND_BYTES
    return f"""## On the wire
A BUY is {given.BUY_BYTES} bytes on an app's connection and {given.SERVICE_BUY_BYTES} on a back end's (it names the user), SOLD_OUT is {given.REFUSAL_BYTES}. Around each packet: TCP with
timestamps {given.TCP_BYTES}, IP {given.IP_BYTES}, Ethernet with checksum {given.ETHERNET_BYTES}, preamble and gap {given.GAP_BYTES}: {around} bytes. An app that asks once a second costs
three packets: its request ({given.BUY_BYTES + around} bytes), the refusal ({given.REFUSAL_BYTES + around}), and its TCP's acknowledgement ({around}), since nothing else carries it.

Two shapes of traffic: **apps**, each user on an own connection with one request in flight, nothing shared (the worst
case); **back ends**, which put many users' requests on few connections.
"""


def gateways(inputs: Inputs, fleets: list[Fleet]) -> str:
    rows = [[name, *(form(each) for each in fleets)] for name, form in (
        ("requests/s", lambda f: f"{f.requests_per_s:,}"),
        ("connections", lambda f: f"{f.connections:,}"),
        ("CPU of a refusal, there, µs", lambda f: f"{f.request_ns / 1e3:.2f}"),
        ("cores busy", lambda f: f"{f.busy_cores:.1f}"),
        (f"**gateways** of {given.GATEWAY_CORES} cores, one of them may be lost", lambda f: f"**{f.gateways}**"),
        ("connections on each when one is lost", lambda f: f"{f.connections_each:,.0f}"),
        ("memory of each then, kernel included, GB", lambda f: f"{f.memory_bytes_each / 1e9:.1f}"),
        ("cores for silence and keep-alive, all gateways", lambda f: f"{f.keepalive_cores:.2f}"),
        ("packets/s in, all gateways", lambda f: f"{f.packets_in_per_s:,.0f}"),
        ("packets/s out", lambda f: f"{f.packets_out_per_s:,.0f}"),
        ("Gbit/s in", lambda f: f"{f.bits_in_per_s / 1e9:.2f}"),
        ("Gbit/s out", lambda f: f"{f.bits_out_per_s / 1e9:.2f}"),
        ("packets/s in and out at each gateway, one lost",
         lambda f: f"{(f.packets_in_per_s + f.packets_out_per_s) / f.left:,.0f}"),
        (f"share of a {given.NIC_BITS_PER_S / 1e9:.0f} Gbit/s port at each",
         lambda f: f"{max(f.bits_in_per_s, f.bits_out_per_s) / f.left / given.NIC_BITS_PER_S:.1%}"),
        ("addresses of a proxying balancer", lambda f: f"{f.balancer_addresses:,}"),
        ("seconds until the clients of a lost gateway are served", lambda f: f"{f.return_seconds:.2f}"),
    )]
    return "## Gateways\n" + table(["", *(f"{f.shape}" for f in fleets)], rows)


def arithmetic(inputs: Inputs, one: Fleet) -> str:
    cores = given.GATEWAY_CORES
    return f"""The first column, step by step:
- CPU of a refusal with {one.connections_each:,.0f} connections on a gateway: {inputs.refusal_ns / 1e3:.2f} µs at {inputs.refusal_connections:,}, and {inputs.growth_ns_per_decade / 1e3:.2f} µs for each tenfold
  beyond; × {inputs.light_load_factor:.2f} (light load) ÷ {inputs.efficiency:.2f} (efficiency) = {one.request_ns / 1e3:.2f} µs.
- Cores: {one.requests_per_s:,}/s × {one.request_ns / 1e3:.2f} µs = {one.busy_cores:.1f} busy; ÷ {given.HEADROOM:.0%} ÷ {cores} cores, rounded up = {one.left}; and one that may be lost: **{one.gateways}**.
- Memory: {inputs.fixed_bytes / 1e6:.0f} MB + {one.connections_each:,.0f} × ({inputs.connection_bytes:,.0f} + {inputs.kernel_bytes:,.0f}) B + its users' limits + {UNITS:,} winners × {inputs.winner_bytes:,.0f} B
  = {one.memory_bytes_each / 1e9:.1f} GB. Socket buffers of clients that do not read come on top, bounded by gateway.outbound_bytes_max each.
- Wires: {one.requests_per_s:,} × 2 packets in, 1 out; {one.bits_in_per_s / 1e9:.2f} Gbit/s in, {one.bits_out_per_s / 1e9:.2f} Gbit/s out.
- A gateway lost: {one.connections:,} ÷ {one.gateways} = {one.connections / one.gateways:,.0f} clients come to the {one.left} left; × {inputs.client_ns / 1e3:.1f} µs ÷ ({1 - given.HEADROOM:.0%} of {one.left * cores} cores)
  = {one.return_seconds:.2f} s, which the clients' jitter (up to 30 s) spreads out anyway.

**Descriptors.** A process needs one for each connection: LimitNOFILE and fs.nr_open above the connections of a gateway
(a million is usual on servers; what was measured here is limited to 20,000 a process).

**The balancer** (L4). One that passes packets on unchanged (LVS direct routing, Maglev, ECMP) sees the packets in and none
out, and needs no port: the client's address stays. One that proxies opens a connection for each client from an address
of its own: {inputs.ports:,} ports (net.ipv4.ip_local_port_range here) for each pair of its address and a gateway's address and
port, so {one.balancer_addresses:,} addresses of its own, or as many more ports at the gateways; and its own idle timeout has to be above the
keep-alive ({given.KEEPALIVE_S} s). TLS, where it is wanted, ends there, and is not counted.
"""


def stores(inputs: Inputs, sold: Sale, fleets: list[Fleet]) -> str:
    low, high = given.REDIS_USERS_PER_S[sold.aof]
    rows = [[f"{nodes}", f"{seconds:.2f}"] for nodes, seconds in sold.seconds_by_nodes.items()]
    fastest = max(given.MARIADB_ROWS_PER_S.values())
    most = max(f.gateways for f in fleets)
    feed = sold.units * given.EVENT_BYTES
    return f"""## Redis: {sold.units:,} units
Refusals never reach Redis: gateways send at most as many requests as there are units, so it sees about {sold.units:,} of
them whether a million users ask or ten. With AOF {sold.aof}, {low:,}–{high:,} users/s for a node; the lower, × {given.HEADROOM:.0%} = {low * given.HEADROOM:,.0f}/s:
{sold.units:,} ÷ ({low * given.HEADROOM:,.0f}/s × nodes). The 16 sub-keys of an SKU spread over up to 16 nodes.

{table(["nodes (masters)", "seconds until the last unit is sold"], rows)}
To sell them within {given.SELL_WITHIN_S} s: **{sold.nodes}** master{"s" if sold.nodes > 1 else ""}, each with a replica. `everysec` takes {low / given.REDIS_USERS_PER_S["everysec"][0]:.2f} × the time and may lose the last second's
promises with the machine.
Every gateway follows the feeds: {sold.units:,} × {given.EVENT_BYTES} B = {feed / 1e6:.0f} MB to each, {feed * most / 1e9:.1f} GB to {most} gateways during the sale: spread over the
masters' replicas, or over more seconds, when that is too much for the wire.

## Writers: {sold.units:,} orders
A database settles {sold.rows_per_s:,}–{fastest:,} rows/s (one client, rows in hundreds to thousands). The lower, × {given.HEADROOM:.0%}:
{sold.units:,} ÷ {sold.rows_per_s * given.HEADROOM:,.0f}/s = **{sold.settle_seconds:.0f} s** until the last order stands in SQL; at the upper end {sold.units / (fastest * given.HEADROOM):.0f} s. Within {given.SETTLE_WITHIN_S} s: **{sold.databases}** database{"s" if sold.databases > 1 else ""}.
{inserts(inputs)}The database is what limits, not the writer: **2** writers for each, so that one may be lost. Buyers do not wait for it:
QUEUED is said when Redis has it, and the payment deadline (15 minutes) is far beyond.
"""


def inserts(inputs: Inputs) -> str:
    """The embedded store beside its own limit, where `bench/run` has measured both."""
    bare = inputs.of_bench_run("sqlite-inserts", "winners", 1, 4096)
    own = inputs.of_bench_run("rushgate", "winners", 64, 64)
    if bare is None or own is None:
        return ""
    return (f"(Embedded, without Redis, one gateway sells {own['requests_per_s']:,.0f} units/s on SQLite, whose bare inserts make "
            f"{bare['requests_per_s']:,.0f} rows/s.)\n")


def check(inputs: Inputs) -> str:
    rows = [[each.what, each.form.format(each.predicted), each.form.format(each.measured), f"{each.error:+.0%}"]
            for each in checks(inputs)]
    slowest = max(wave["seconds"] for wave in inputs.storm_waves)
    packets = ", ".join(f"{count:.2f} at depth {depth}" for depth, count in inputs.packets_per_request.items())
    return f"""## The model against measured points
{table(["", "model", "measured", "model off by"], rows)}
The storm: {inputs.storm_clients:,} clients × {inputs.client_ns / 1e3:.1f} µs = {inputs.storm_clients * inputs.client_ns / 1e9:.2f} s of the gateway's one core; all were served after {slowest:.2f} s at most, the load
generator's own work for them included; {inputs.storm_drops} connections were dropped for want of backlog (net.core.somaxconn {inputs.backlogs[0]:,},
net.ipv4.tcp_max_syn_backlog {inputs.backlogs[1]:,}). Packets for a request and its refusal on loopback, other
programs' among them: {packets} (in a closed loop the next request carries the acknowledgement; the model's three are of a user who waits).
"""


def limits(inputs: Inputs) -> str:
    costs = [point["bytes_per_connection"] for point in inputs.memory_points]
    return f"""## What it does not know
- **Loopback is not a network.** A packet costs no driver and no interrupt here, and part of the gateway's share of TCP's work
  runs on the generator's account and the other way round. At {given.HEADROOM:.0%} there is room for {1 / given.HEADROOM - 1:.0%} more.
- **Two cores are not {given.GATEWAY_CORES}.** The efficiency is that of two cores which the load generator shares. What all cores write to would
  show beyond; memory bandwidth and NUMA, too.
- **More than {inputs.memory_points[-1]["connections"]:,} connections** were never held; up to there each cost {min(costs):,.0f} to {max(costs):,.0f} B, {costs[-1]:,.0f} at the end.
- **Redis and MariaDB** were measured alone, not under gateways; replicas, failover and the feeds' readers are not in it.
- TLS, conntrack (switch it off for the port, or size it), cross-zone latency and clients that do not read are not in it.
"""
