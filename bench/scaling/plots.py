"""The pictures in bench/results: how cost grows, from scale.json alone. Titles say what the numbers say."""

import json
from pathlib import Path

from .preparation import ROOT
from .style import NAMES, bars, colour, dress, figure, legend, line, log_ticks, save

TARGET_BYTES = 1536


def draw_all(folder: Path, into: Path | None = None, suffix: str = ".svg") -> list[Path]:
    """Every picture whose section has been measured."""
    results = json.loads((folder / "scale.json").read_text())
    drawn = []
    for name, section, draw in PICTURES:
        taken = results["sections"].get(section)
        if taken is not None:
            drawn.append(save(draw(taken["points"], caption(results, taken)), (into or folder) / f"{name}{suffix}"))
    return drawn


def caption(results: dict, section: dict) -> str:
    """Where it was measured."""
    machine = results["machine"]
    quick = "; a quick run, for orientation only" if section["quick"] else ""
    return (f"{machine['cpu']}, {machine['cores']} cores, Linux {results['versions']['kernel']}, loopback;"
            f" revision {section['revision'][:10]}{quick}")


def contenders(points: list[dict]) -> dict[str, list[dict]]:
    """Points by contender, the gateway first."""
    found: dict[str, list[dict]] = {name: [] for name in NAMES}
    for point in points:
        found[point["contender"]].append(point)
    return {name: of_it for name, of_it in found.items() if of_it}


def span(values: list[float], form: str = "{:,.0f}") -> str:
    """The least to the greatest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def memory(points: list[dict], caption_text: str):
    by = contenders(points)
    counts = [point["connections"] for point in by["rushgate"]]
    each = [point["bytes_per_connection"] for point in by["rushgate"]]
    title = f"An idle connection costs {span(each)} B, from {counts[0]:,} connections to {counts[-1]:,}"
    title += f", a bare tokio task {span([point['bytes_per_connection'] for point in by['bare-task']])} B"
    made, (left, right) = figure(title, caption_text + "; more than 19,500: two processes", 2)
    for place, (contender, of_it) in enumerate(by.items()):
        xs = [point["connections"] for point in of_it]
        line(left, contender, xs, [point["bytes_per_connection"] for point in of_it], above=place == 0)
        name, key = NAMES[contender]
        right.plot(xs, [point["resident_with_bytes"] / 1e6 for point in of_it], color=colour[key], marker="o",
                   markersize=5, linewidth=2, label=name)
    left.axhline(TARGET_BYTES, color=colour["muted"], linewidth=1, linestyle=(0, (4, 3)))
    left.annotate("target 1,536 B", (counts[-1], TARGET_BYTES), textcoords="offset points", xytext=(0, 4), ha="right",
                  color=colour["muted"], fontsize=8.5)
    dress(left, "idle authenticated connections", "resident bytes for each")
    dress(right, "idle authenticated connections", "resident memory, MB")
    left.set_xscale("log")
    log_ticks(left.xaxis, counts)
    left.tick_params(axis="x", labelsize=8)
    left.set_ylim(0, 1.15 * max(TARGET_BYTES, *each))
    left.margins(x=0.08)
    right.set_ylim(bottom=0)
    right.set_xlim(left=0)
    right.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    legend(left, loc="lower right")
    return made


def by_connections(points: list[dict], caption_text: str):
    by = contenders(points)
    cost = {point["connections"]: point["server_cpu_ns"] for point in by["rushgate"]}
    counts = list(cost)
    base = 64 if 64 in cost else counts[0]
    title = f"With {counts[-1]:,} connections a refusal costs {cost[counts[-1]] / cost[base]:.2f} × what it costs with {base}"
    if "echo-tokio" in by:
        echo = {point["connections"]: point["server_cpu_ns"] for point in by["echo-tokio"]}
        title += f", an echo {echo[counts[-1]] / echo[base]:.2f} ×"
    made, (axis,) = figure(title, caption_text)
    for place, (contender, of_it) in enumerate(by.items()):
        line(axis, contender, [point["connections"] for point in of_it],
             [point["server_cpu_ns"] / 1000 for point in of_it], "{:.2f}", above=place == 0)
    dress(axis, "connections, one request in flight on each", "server CPU for each request, µs")
    axis.set_xscale("log")
    log_ticks(axis.xaxis, counts)
    axis.set_ylim(bottom=0)
    axis.margins(y=0.15)
    legend(axis, loc="lower right")
    return made


def by_depth(points: list[dict], caption_text: str):
    by = contenders(points)
    cost = {point["depth"]: point["server_cpu_ns"] for point in by["rushgate"]}
    depths = list(cost)
    first, last = depths[0], depths[-1]
    # cost = wake / depth + frame, from the first and the last.
    wake = (cost[first] - cost[last]) / (1 / first - 1 / last) / first / cost[first]
    title = (f"A refusal costs {cost[first] / 1000:.2f} µs alone and {cost[last]:,.0f} ns in a batch of {last}:"
             f" {wake:.0%} of the one alone is the wake")
    made, (axis,) = figure(title, caption_text + "; 64 connections")
    for place, (contender, of_it) in enumerate(by.items()):
        line(axis, contender, [point["depth"] for point in of_it], [point["server_cpu_ns"] for point in of_it],
             above=place == 0)
    dress(axis, "requests in flight on each connection", "server CPU for each request, ns")
    axis.set_xscale("log")
    axis.set_yscale("log")
    log_ticks(axis.xaxis, depths)
    log_ticks(axis.yaxis, [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000])
    axis.margins(y=0.12)
    legend(axis, loc="upper right")
    return made


def cores(points: list[dict], caption_text: str):
    efficiencies = [point["efficiency"] for point in points]
    title = f"On two cores instead of one a refusal costs {span([1 / each for each in efficiencies], '{:.2f}')} × the CPU time"
    made, (axis,) = figure(title, caption_text + "; 64 connections; on two cores the load generator runs beside it")
    groups = [f"depth {point['depth']}\n{'as fast as it goes' if point['mode'] == 'closed' else 'at a fixed rate'}"
              for point in points]
    bars(axis, groups, [
        ("1 worker on one core", "base", [point["one_core"]["server_cpu_ns"] / 1000 for point in points]),
        ("2 workers on both cores", "gateway", [point["two_cores"]["server_cpu_ns"] / 1000 for point in points]),
    ], "{:.2f}")
    dress(axis, "", "server CPU for each request, µs")
    legend(axis, loc="upper right")
    return made


def activities(points: list[dict], caption_text: str):
    one, many = ([point for point in points if (point["activities"] > 1) is is_many] for is_many in (False, True))
    ratios = [after["server_cpu_ns"] / before["server_cpu_ns"] for before, after in zip(one, many)]
    grown = (many[0]["resident_sold_out_bytes"] - one[0]["resident_sold_out_bytes"]) / 1e6
    title = (f"{many[0]['activities'] * many[0]['skus_each']:,} articles instead of one: a refusal costs"
             f" {span(ratios, '{:.2f}')} × the CPU time, the gateway {grown:.0f} MB more")
    made, (axis,) = figure(title, caption_text + "; 64 service connections")
    bars(axis, [f"depth {point['depth']}" for point in one], [
        ("1 activity with 1 SKU", "base", [point["server_cpu_ns"] / 1000 for point in one]),
        (f"{many[0]['activities']:,} activities with {many[0]['skus_each']} SKUs", "gateway",
         [point["server_cpu_ns"] / 1000 for point in many]),
    ], "{:.2f}")
    dress(axis, "", "server CPU for each refusal, µs")
    legend(axis, loc="upper right")
    return made


def sub_keys(points: list[dict], caption_text: str):
    rates = [point["winners_per_s"] for point in points]
    title = (f"All buyers on one sub-key: {rates[1] / rates[0]:.2f} × the winners a second of all sixteen,"
             f" {rates[2] / rates[0]:.2f} × when it has to fetch its units from the others")
    made, (axis,) = figure(title, caption_text + "; SQLite, synchronous = full")
    bars(axis, [point["case"].replace(", ", ",\n") for point in points], [("winners", "gateway", rates)])
    dress(axis, "", "winners a second")
    return made


PICTURES = [
    ("scale-memory", "idle_memory", memory),
    ("scale-connections", "refusals_by_connections", by_connections),
    ("scale-depth", "refusals_by_depth", by_depth),
    ("scale-cores", "cores", cores),
    ("scale-activities", "activities", activities),
    ("scale-sub-keys", "sub_keys", sub_keys),
]


def preview(folder: Path) -> None:
    """All pictures as PNG in both palettes, to be looked at."""
    from . import style

    for palette in (style.LIGHT, style.DARK):
        colour.update(palette)
        into = folder / ("light" if palette is style.LIGHT else "dark")
        into.mkdir(parents=True, exist_ok=True)
        draw_all(ROOT / "bench" / "results", into, ".png")
    colour.update(style.LIGHT)
