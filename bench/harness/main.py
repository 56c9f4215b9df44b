"""bench/run: installs, measures in rounds, writes the results."""

import argparse
import contextlib
import dataclasses
import datetime
import os
import pathlib
import resource
import signal
import sys
import time

from . import install, machine, report
from .errors import BadMeasurement, CannotStart
from .others import Echo, FastApi, Nginx, RedisScript
from .paths import RESULTS, WORK
from .plan import CONTENDERS, FULL_TIMING, QUICK_TIMING, points
from .rushgate import Inserts, Rushgate
from .samples import Samples

START = {
    "echo-epoll": lambda: Echo("epoll"), "echo-tokio": lambda: Echo("tokio"),
    "echo-tokio-multi": lambda: Echo("tokio-multi"), "rushgate": Rushgate, "nginx-lua": Nginx,
    "redis-script": RedisScript, "fastapi": FastApi, "sqlite-inserts": Inserts,
}
DESCRIPTORS = 12_000
ATTEMPTS = 2
# A machine on which nothing else runs is this busy at most.
QUIET = 0.05


def main():
    arguments = parse()
    # Whoever ends us, the servers end too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(arguments)
    except CannotStart as error:
        print(f"bench/run: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bench/run: interrupted; nothing written", file=sys.stderr)
        return 130


def parse():
    parser = argparse.ArgumentParser(
        prog="bench/run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures Rushgate, bare echo servers and what people use instead, side by side.",
        epilog="exit codes: 0 measured, whether or not targets are met; 1 something answered wrongly or not at all;\n"
               "2 something is missing or does not start (it is named; --only leaves it out)")
    parser.add_argument("--quick", action="store_true", help="fewer points, shorter: under 10 minutes")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds [5; --quick: 3]")
    parser.add_argument("--seconds", type=int, metavar="N", help="of each measurement [3; --quick: 2]")
    parser.add_argument("--only", action="append", choices=CONTENDERS, metavar="NAME",
                        help=f"only this contender; may be repeated: {', '.join(CONTENDERS)}")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR",
                        help="where latest.json and latest.md go [bench/results; with --only target/bench/results]")
    arguments = parser.parse_args()
    for name in ("rounds", "seconds"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name} {value}: at least 1")
    return arguments


def run(arguments):
    timing = QUICK_TIMING if arguments.quick else FULL_TIMING
    timing = dataclasses.replace(timing, rounds=arguments.rounds or timing.rounds,
                                 seconds=arguments.seconds or timing.seconds)
    only = arguments.only or CONTENDERS
    if not {0, 1} <= os.sched_getaffinity(0):
        raise CannotStart("cores 0 and 1 are needed, one for the servers and one for the load generator")
    raise_descriptors()
    install.install(only)
    chosen = points(arguments.quick, only)
    samples, failures = Samples(), []
    busy_before = machine.busy()
    if busy_before > QUIET:
        print(f"bench/run: other programs keep {busy_before:.0%} of the machine busy; believe CPU times rather than rates",
              file=sys.stderr)
    began = time.monotonic()
    about = {
        "machine": {**machine.machine(), "busy_before": busy_before}, "versions": machine.versions(only), "revision": machine.revision(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "mode": "quick" if arguments.quick else "full", "rounds": timing.rounds, "seconds": timing.seconds,
    }
    for number in range(1, timing.rounds + 1):
        failures += measure_round(number, timing, chosen, samples, began)
    folder = arguments.out or (WORK / "results" if arguments.only else RESULTS)
    report.write(folder, {**about, "failures": failures}, samples)
    print("\n".join(report.targets_table(samples)))
    say(began, f"done, {len(failures)} failures; the tables are in {folder}")
    return 1 if failures else 0


def measure_round(number, timing, chosen, samples, began):
    """Every contender starts when it is first needed and stays up, idle, while others are measured.

    Gives what could not be measured; the rest goes on.
    """
    running, failures = {}, []
    with contextlib.ExitStack() as at_end:
        for place, point in enumerate(chosen, 1):
            if point.contender not in running:
                running[point.contender] = START[point.contender]()
                at_end.callback(running[point.contender].stop)
            try:
                rate = half_of_maximum(point, samples) if point.open_loop else None
                sample = measure(running[point.contender], point, timing, rate)
            except BadMeasurement as error:
                failures.append(f"round {number}, {point}: {error}")
                print(f"bench/run: {failures[-1]}", file=sys.stderr)
                continue
            samples.add(point, number, sample)
            cpu = report.duration(sample["server_cpu_ns"])
            say(began, f"round {number}/{timing.rounds} · {place}/{len(chosen)} · {point}: "
                       f"{sample['requests_per_s']:,.0f}/s, {cpu} of CPU each")
    return failures


def measure(contender, point, timing, rate):
    """A bad measurement is tried once more: a machine may be busy for a moment."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return contender.measure(point, timing, rate)
        except BadMeasurement as error:
            if attempt == ATTEMPTS:
                raise
            print(f"bench/run: {point}: {error}; once more", file=sys.stderr)


def half_of_maximum(point, samples):
    """Of the closed loop that was measured just before."""
    maximum = samples.latest(dataclasses.replace(point, open_loop=False), "requests_per_s")
    if maximum is None:
        raise BadMeasurement("its maximum is not known")
    return int(maximum / 2)


def raise_descriptors():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        raise CannotStart(f"10,000 connections need {DESCRIPTORS:,} open files, the limit is {hard:,}; raise it (ulimit -Hn)")
    # The children inherit it.
    most = 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if hard == resource.RLIM_INFINITY else min(hard, most), hard))


def say(began, line):
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    print(f"[{minutes:02}:{seconds:02}] {line}", file=sys.stderr, flush=True)
