"""bench/results/scale.md: what was measured, as tables, with the two targets that are this program's to check."""

import json
from pathlib import Path

from .paper import table
from .plots import TARGET_BYTES, caption

STORM_TARGET_S = 5


def write(folder: Path) -> Path:
    """From scale.json; sections that are missing there are missing here."""
    results = json.loads((folder / "scale.json").read_text())
    settings = results["settings"]
    low, high = settings["ip_local_port_range"]
    parts = [
        "# How cost grows\n",
        f"Written by `bench/scale`. {results['versions']['rustc']}; {settings['descriptors_per_process']:,} descriptors a process,"
        f" net.core.somaxconn {settings['somaxconn']:,}, net.ipv4.tcp_max_syn_backlog {settings['tcp_max_syn_backlog']:,}"
        f" (syncookies {'on' if settings['tcp_syncookies'] else 'off'}), ports {low} to {high}. CPU time is the server's alone.\n",
    ]
    said = ""
    for section, (title, write_section) in SECTIONS.items():
        taken = results["sections"].get(section)
        if taken is None:
            continue
        parts.append(f"\n## {title}\n")
        if said != caption(results, taken):
            said = caption(results, taken)
            parts.append(f"{said}.\n\n")
        parts.append(write_section(taken["points"]))
    file = folder / "scale.md"
    file.write_text("".join(parts))
    return file


def verdict(is_met: bool) -> str:
    return "met" if is_met else "**missed**"


def memory(points: list[dict]) -> str:
    rows = [[f"{point['contender']}, {point['connections']:,} in {point['servers']}", f"{point['resident_before_bytes'] / 1e6:.1f}",
             f"{point['resident_with_bytes'] / 1e6:.1f}", f"{point['bytes_per_connection']:,.0f}",
             f"{point['kernel_bytes_per_end']:,.0f}"] for point in points]
    most = max((point for point in points if point["contender"] == "rushgate"), key=lambda point: point["connections"])
    each = most["bytes_per_connection"]
    return (table(["connections, processes", "MB without", "MB with", "bytes each", "and in the kernel"], rows)
            + f"\nTarget at {most['connections']:,}: at most {TARGET_BYTES:,} B each, {verdict(each <= TARGET_BYTES)} ({each:,.0f}).\n")


def idle_cpu(point: dict) -> str:
    ping = "not in a quick run" if point["ping_cpu_ns"] is None else f"{point['ping_cpu_ns'] / 1e3:.2f} µs"
    return table([f"{point['connections']:,} connections", "CPU"], [
        ["gateway alone", f"{point['cores_without']:.2%} of a core"],
        ["all silent", f"{point['cores_silent']:.2%} of a core"],
        ["one PING of one connection", ping],
    ])


def storm(found: dict) -> str:
    rows = [[f"{wave['wave']}, {'with' if wave['jitter'] else 'without'} jitter", f"{wave['served']:,} of {wave['clients']:,}",
             f"{wave['seconds']:.2f}", f"{wave['p50_us'] / 1e6:.2f}", f"{wave['errors']:,}", f"{wave['listen_drops'] or 0:,}"]
            for wave in found["waves"]]
    is_met = all(wave["seconds"] <= STORM_TARGET_S and wave["served"] == wave["clients"] and not wave["errors"]
                 and not wave["listen_drops"] for wave in found["waves"] if not wave["jitter"])
    counted = ", ".join(f"{name} {count}" for name, count in found["kernel"].items())
    return (table(["wave", "served", "s until all are", "median s", "failed attempts", "dropped by the listener"], rows)
            + f"\n{found['server_cpu_ns_per_client'] / 1e3:.1f} µs of CPU for each client (TCP, HELLO, AUTH, one refused BUY), the generator's"
            f" work is beside it. The kernel counted: {counted}.\n"
            f"\nTarget: all served within {STORM_TARGET_S} s, none refused, {verdict(is_met)}.\n")


def churn(found: dict) -> str:
    return table(["connect, HELLO, AUTH, BUY, close", ""], [
        ["rounds/s, one generator core", f"{found['rounds_per_s']:,.0f}"],
        ["server CPU of a round", f"{found['server_cpu_ns'] / 1e3:.1f} µs"],
        ["p50, p99 from connecting to the answer", f"{found['p50_us'] / 1e3:.2f} ms, {found['p99_us'] / 1e3:.2f} ms"],
    ])


def curve(points: list[dict]) -> str:
    rows = [[f"{point['contender']}, {point['connections']:,} × {point['depth']}", f"{point['requests_per_s']:,.0f}",
             f"{point['server_cpu_ns']:,.0f}", " to ".join(f"{each:,.0f}" for each in point["server_cpu_ns_range"]),
             f"{point['server_cores_used']:.2f}", f"{point['p50_us']:,.0f}", f"{point['p99_us']:,.0f}"] for point in points]
    return table(["connections × depth", "requests/s", "CPU each, ns", "rounds", "cores used", "p50 µs", "p99 µs"], rows)


def cores(points: list[dict]) -> str:
    rows = [[f"depth {point['depth']}, {point['mode']} loop", *(f"{point[side]['requests_per_s']:,.0f}" for side in ("one_core", "two_cores")),
             *(f"{point[side]['server_cpu_ns']:,.0f}" for side in ("one_core", "two_cores")), f"{point['efficiency']:.2f}"]
            for point in points]
    return (table(["64 connections", "1 core, requests/s", "2 cores", "1 core, CPU ns", "2 cores", "efficiency"], rows)
            + "\nOn two cores the load generator has to share them with the server, so requests/s say little there; the"
            " efficiency is CPU time for a request on one core ÷ on two.\n")


def activities(points: list[dict]) -> str:
    rows = [[f"{point['activities']:,} × {point['skus_each']}, depth {point['depth']}", f"{point['requests_per_s']:,.0f}",
             f"{point['server_cpu_ns']:,.0f}", f"{point['resident_started_bytes'] / 1e6:.1f}",
             f"{point['resident_sold_out_bytes'] / 1e6:.1f}"] for point in points]
    return table(["activities × SKUs", "refusals/s", "CPU each, ns", "MB at the start", "MB sold out"], rows)


def sub_keys(points: list[dict]) -> str:
    rows = [[point["case"], f"{point['buyers']:,}", f"{point['stock']:,}", f"{point['winners_per_s']:,}",
             f"{point['server_cpu_ns'] / 1e3:.1f}", f"{point['server_cores_used']:.2f}", f"{point['store_calls']:,}"] for point in points]
    return table(["buyers hash to", "winners", "units", "winners/s", "CPU each, µs", "cores used", "calls to the store"], rows)


SECTIONS = {
    "idle_memory": ("Memory of idle connections", memory),
    "idle_cpu": ("CPU time of idle connections", idle_cpu),
    "storm": ("Reconnect storm", storm),
    "churn": ("Churn", churn),
    "refusals_by_connections": ("Refusals against connections", curve),
    "refusals_by_depth": ("Refusals against depth", curve),
    "cores": ("Two cores against one", cores),
    "activities": ("Ten thousand articles against one", activities),
    "sub_keys": ("Sub-keys: 1 against 16", sub_keys),
}
