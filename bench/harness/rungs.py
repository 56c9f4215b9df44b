"""bench/rungs: refusals with each rung alone, with all of them and with none, by the server's CPU."""

import argparse
import contextlib
import dataclasses
import json
import statistics
import sys

from . import install
from .errors import BadMeasurement, CannotStart
from .paths import RESULTS
from .plan import QUICK_TIMING, Point
from .rushgate import FIRST_BUYER, HIGH, LIMITS, NEVER_TOO_MUCH, SOLD_OUT, Gateway, sell_out

NONE, ALL = "none", "all of them"


def limit(name):
    return {"more": {f"limits.{name}.{key}": value for key, value in HIGH.items()}}


# What is switched on, each alone; `result_per_user` is not asked by a BUY.
RUNGS = {
    NONE: {},
    **{f"limits.{name}": limit(name) for name in LIMITS if name != "result_per_user"},
    "behaviour": {"more": NEVER_TOO_MUCH},
    "risk lists, 100,000 users": {"listed": True},
    # Nobody has the claim: the rule lets everybody in.
    "eligibility, a rule": {"more": {"auth.claims": '["level"]'}, "terms": ["--eligibility", "not (level >= 2)"]},
    "allow-list, 100,000 users": {"terms": ["--allow-list"], "invited": [FIRST_BUYER, *range(1, 100_000)]},
    "explain (risk.explain_slots = 0 is off)": {"more": {}},
}
DEPTHS = (1, 64)


def main():
    parser = argparse.ArgumentParser(prog="bench/rungs", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    arguments = parser.parse_args()
    try:
        return run(arguments.rounds)
    except (CannotStart, BadMeasurement) as error:
        print(f"bench/rungs: {error}", file=sys.stderr)
        return 2


def settings_of(name):
    """Nothing is remembered for whoever asks why, but where that is measured."""
    given = dict(RUNGS[name])
    if not name.startswith("explain"):
        given["more"] = {"risk.explain_slots": 0, **given.get("more", {})}
    return {"rungs": False, **given}


def run(rounds):
    install.install(["rushgate"])
    timing = dataclasses.replace(QUICK_TIMING, seconds=1)
    samples = {}
    with contextlib.ExitStack() as at_end:
        gateways = {}
        for nth, name in enumerate([*RUNGS, ALL]):
            gateways[name] = Gateway(f"rung-{nth}", [1], **({} if name == ALL else settings_of(name)))
            at_end.callback(gateways[name].stop)
            sell_out(gateways[name])
        for number in range(1, rounds + 1):
            for depth in DEPTHS:
                point = Point("rushgate", "sold_out", 64, depth)
                for name, gateway in gateways.items():
                    sample = gateway.flood(point, timing, "SOLD_OUT", "--activity", SOLD_OUT)
                    samples.setdefault((name, depth), []).append(sample)
            print(f"bench/rungs: round {number} of {rounds}", file=sys.stderr)
    report = {name: {f"64x{depth}": told(samples, name, depth) for depth in DEPTHS} for name in gateways}
    (RESULTS / "rungs.json").write_text(json.dumps(report, indent=2) + "\n")
    lines = table(report)
    (RESULTS / "rungs.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def told(samples, name, depth):
    """Medians over rounds; the difference and the ratio are those of each round."""
    own, bare = samples[name, depth], samples[NONE, depth]
    cpu = [sample["server_cpu_ns"] for sample in own]
    more = [sample["server_cpu_ns"] - none["server_cpu_ns"] for sample, none in zip(own, bare)]
    speed = [sample["requests_per_s"] / none["requests_per_s"] for sample, none in zip(own, bare)]
    return {"cpu_ns": round(statistics.median(cpu)), "more_ns": round(statistics.median(more)),
            "speed": round(statistics.median(speed), 3)}


def table(report):
    lines = ["| switched on | CPU, 64×1 | more | speed | CPU, 64×64 | more | speed |",
                   "|---|--:|--:|--:|--:|--:|--:|"]
    for name, at in report.items():
        cells = []
        for depth in DEPTHS:
            one = at[f"64x{depth}"]
            cells += [f"{one['cpu_ns']:,} ns", f"{one['more_ns']:+,} ns", f"{one['speed']:.2f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines
