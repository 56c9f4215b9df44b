"""How the cost of a request grows: with connections, depth, cores, activities, and sub-keys in use."""

from .floods import flood, median_of, refusing_gateway
from .gateway import Echo, Gateway
from .preparation import echo_binary, say
from .processes import GENERATOR_CORE, SERVER_CORE, result, start_module

BOTH = {SERVER_CORE, GENERATOR_CORE}
ACTIVITIES, SKUS_EACH = 1_000, 10
SELL = {"work": "sell", "connections": 8, "in_flight": 256}


def told(found: dict) -> dict:
    """Says a point while the run goes on."""
    say(f"  {found['contender']}, {found['connections']} connections, depth {found['depth']}:"
        f" {found['requests_per_s']:,.0f}/s, {found['server_cpu_ns']:,.0f} ns")
    return found


def curve(points: list[tuple[int, int]], quick: bool, counts_packets: bool) -> list[dict]:
    """Refusals, and echoes in turn with them, at (connections, depth)."""
    seconds, rounds = (1, 1) if quick else (4, 3)
    makers = [refusing_gateway] + ([Echo] if echo_binary() is not None else [])
    found = []
    for connections, depth in points:
        taken: list[list[dict]] = [[] for _ in makers]
        for _ in range(rounds):
            for make, into in zip(makers, taken):
                with make() as server:
                    into.append(flood(server, connections, depth, seconds, counts_packets=counts_packets))
        found += [told(median_of(into)) for into in taken]
    return found


def by_connections(quick: bool) -> list[dict]:
    """Depth 1; with few connections each wake finds one request, with many it finds several connections."""
    counts = [1, 64, 1_024, 10_000] if quick else [1, 4, 16, 64, 256, 1_024, 4_096, 10_000]
    return curve([(count, 1) for count in counts], quick, counts_packets=False)


def by_depth(quick: bool) -> list[dict]:
    """64 connections; the cost of a wake is shared by more and more requests."""
    depths = [1, 4, 16, 64] if quick else [1, 2, 4, 8, 16, 32, 64]
    return curve([(64, depth) for depth in depths], quick, counts_packets=True)


def cores(quick: bool) -> list[dict]:
    """One worker on one core against two workers on both, where the generator has to run as well."""
    seconds, rounds = (2, 1) if quick else (5, 3)
    found = []
    for depth in (1, 16):
        rate = None
        for mode in ("closed", "open"):
            taken: dict[int, list[dict]] = {1: [], 2: []}
            for _ in range(rounds):
                for workers, server_cores, generator_cores in ((1, {SERVER_CORE}, {GENERATOR_CORE}), (2, BOTH, BOTH)):
                    with refusing_gateway(workers, server_cores) as gateway:
                        taken[workers].append(flood(gateway, 64, depth, seconds, rate, generator_cores))
            one, two = median_of(taken[1]), median_of(taken[2])
            found.append({
                "depth": depth,
                "mode": mode,
                "one_core": one,
                "two_cores": two,
                "efficiency": round(one["server_cpu_ns"] / two["server_cpu_ns"], 3),
            })
            say(f"  cores, depth {depth}, {mode} loop: efficiency {found[-1]['efficiency']:.2f}")
            # The same offered load for both, which neither has trouble with.
            rate = int(min(one["requests_per_s"], two["requests_per_s"]) / 2)
    return found


def refusals_over(gateway: Gateway, activities: int, skus: int, depth: int, seconds: int) -> dict:
    """BUYs of 10,000 users over all the sold-out articles there are."""
    asked = {
        "work": "refuse", "addr": gateway.addr, "token": gateway.service_token(), "connections": 64, "depth": depth,
        "activities": activities, "skus": skus, "seconds": seconds, "frames": ACTIVITIES * SKUS_EACH,
        "first_user": 1_000_000,
    }
    before, cpu_before = gateway.replies("SOLD_OUT"), gateway.cpu_ns()
    driven = result(start_module("drive", asked))
    cpu_after, answered = gateway.cpu_ns(), gateway.replies("SOLD_OUT") - before
    if not driven["answered"] <= answered <= driven["answered"] + 64 * depth:
        raise RuntimeError(f"{driven['answered']} answers read, {answered} counted by the gateway")
    return {"generator_cores_used": driven["generator_cores_used"],
            "requests_per_s": driven["answered"] / driven["seconds"],
            "server_cpu_ns": round((cpu_after - cpu_before) / answered, 1)}


def activities(quick: bool) -> list[dict]:
    """Refusals of one article against refusals spread over ten thousand."""
    seconds, rounds = (2, 1) if quick else (5, 3)
    found = []
    for count, skus in ((1, 1), (ACTIVITIES, SKUS_EACH)):
        say(f"  creating {count} activities with {skus} SKUs each")
        made = [(number, [(sku, 1) for sku in range(1, skus + 1)]) for number in range(1, count + 1)]
        with Gateway(made) as gateway:
            started_bytes = gateway.resident_bytes()
            # Few at once: nearly every unit has to be fetched from the sub-key it was loaded into.
            sale = SELL | {"addr": gateway.addr, "token": gateway.service_token(), "buyers": count * skus,
                           "in_flight": 32, "activities": count, "skus": skus, "shards": 16}
            result(start_module("drive", sale))
            sold_bytes = gateway.resident_bytes()
            for depth in (1, 16):
                taken = [refusals_over(gateway, count, skus, depth, seconds) for _ in range(rounds)]
                found.append({"contender": "rushgate", "activities": count, "skus_each": skus, "connections": 64,
                              "depth": depth, "resident_started_bytes": started_bytes,
                              "resident_sold_out_bytes": sold_bytes} | median_of(taken))
                told(found[-1])
    return found


def sub_keys(quick: bool) -> list[dict]:
    """Winners when buyers hash to all 16 sub-keys, to one that has enough, and to one that has to fetch the rest."""
    buyers, rounds = (20_000, 1) if quick else (200_000, 3)
    cases = (
        ("all 16 sub-keys", 16, buyers * 2),
        ("one, with enough of its own", 1, buyers * 16),
        ("one, which fetches 15 of 16 units", 1, buyers),
    )
    found = []
    for name, shards, stock in cases:
        taken = []
        for _ in range(rounds):
            with Gateway([(1, [(1, stock)])]) as gateway:
                sale = SELL | {"addr": gateway.addr, "token": gateway.service_token(), "buyers": buyers,
                               "activities": 1, "skus": 1, "shards": shards}
                before, resident_before = gateway.cpu_ns(), gateway.resident_bytes()
                driven = result(start_module("drive", sale))
                metrics = gateway.metrics()
                taken.append({
                    "winners_per_s": round(driven["queued"] / driven["seconds"]),
                    "server_cpu_ns": round((gateway.cpu_ns() - before) / driven["queued"]),
                    "generator_cores_used": driven["generator_cores_used"],
                    "server_cores_used": round((gateway.cpu_ns() - before) / driven["seconds"] / 1e9, 3),
                    "resident_bytes_per_winner": round((gateway.resident_bytes() - resident_before) / buyers, 1),
                    "told_to_retry": driven["told_to_retry"],
                    "store_calls": metrics["rushgate_store_calls_total"],
                })
        found.append({"case": name, "sub_keys": shards, "stock": stock, "buyers": buyers}
                     | median_of(taken, "winners_per_s"))
        say(f"  {name}: {found[-1]['winners_per_s']:,}/s")
    return found
