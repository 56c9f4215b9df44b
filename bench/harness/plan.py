"""What is measured: every point, in the order in which a round takes them."""

import dataclasses

CONTENDERS = ["echo-epoll", "echo-tokio", "echo-tokio-multi", "rushgate", "nginx-lua", "redis-script", "fastapi",
              "sqlite-inserts"]

# (connections, requests in flight on each)
FULL = [(1, 1), (64, 1), (1024, 1), (10_000, 1), (1, 16), (64, 16), (1024, 16), (1, 64), (64, 64), (1024, 64)]
QUICK = [(1, 1), (64, 1), (1024, 1), (10_000, 1), (64, 16), (64, 64)]
DEPTHS = [(64, 1), (64, 16), (64, 64)]


@dataclasses.dataclass(frozen=True)
class Point:
    """One row of the table."""

    contender: str
    work: str
    connections: int
    depth: int
    open_loop: bool = False

    def __str__(self):
        loop = ", open loop" if self.open_loop else ""
        return f"{self.contender} {self.work} {self.connections}×{self.depth}{loop}"


# (contender, work, full, quick)
_GRID = [
    ("echo-epoll", "echo", FULL, [(64, 1), (1024, 1), (64, 16), (64, 64)]),
    ("echo-tokio", "echo", FULL, QUICK),
    ("echo-tokio-multi", "echo", [(64, 1), (1024, 1), (64, 16)], [(64, 1)]),
    ("rushgate", "sold_out", FULL, QUICK),
    ("rushgate", "sold_out_no_rungs", DEPTHS, [(64, 1), (64, 64)]),
    ("rushgate", "sold_out_service", [(1, 64), (1024, 1), *DEPTHS], DEPTHS),
    ("rushgate", "already", DEPTHS, [(64, 1), (64, 16)]),
    ("rushgate", "result", DEPTHS, [(64, 1), (64, 16)]),
    ("rushgate", "activity", DEPTHS, [(64, 1), (64, 16)]),
    ("rushgate", "rate_limited", DEPTHS, [(64, 1), (64, 16)]),
    # Not with 10,000 connections: wrk's time runs while it opens them.
    ("nginx-lua", "sold_out", [(1, 1), (1024, 1), *DEPTHS], [(64, 1), (1024, 1), (64, 16)]),
    ("redis-script", "sold_out", [(1, 1), (1024, 1), *DEPTHS], [(64, 1), (64, 16)]),
]
# Those that are no point of the grid: winners, and what is slow.
_APART = [
    Point("nginx-lua", "winners", 64, 1),
    Point("redis-script", "winners", 64, 1),
    Point("redis-script", "winners", 64, 16),
    Point("fastapi", "sold_out", 64, 1),
    Point("fastapi", "winners", 64, 1),
    # In this order: the second takes the size of its transactions from the first.
    Point("rushgate", "winners", 64, 64),
    Point("sqlite-inserts", "winners_same_batches", 1, 1),
    Point("sqlite-inserts", "winners", 1, 4096),
    Point("rushgate", "mixed_sale", 64, 64),
]
_OPEN_LOOP = [Point("echo-tokio", "echo", 64, 1, True), Point("rushgate", "sold_out", 64, 1, True)]


def points(quick, only):
    """Neighbours in the list are neighbours in time: what is compared is measured next to each other."""
    grid = []
    for place in FULL:
        for contender, work, full, few in _GRID:
            if place in (few if quick else full):
                grid.append(Point(contender, work, *place))
        if place == (64, 1):
            grid += _OPEN_LOOP
    chosen = [point for point in [*grid, *_APART] if point.contender in only]
    return [point for point in chosen if point.work != "winners_same_batches" or "rushgate" in only]


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long and how often."""

    rounds: int
    seconds: int
    warmup_s: float
    sale_users: int


FULL_TIMING = Timing(rounds=5, seconds=3, warmup_s=0.5, sale_users=200_000)
QUICK_TIMING = Timing(rounds=3, seconds=2, warmup_s=0.3, sale_users=100_000)
