"""The ratios that matter, each with what it has to be."""

import dataclasses

from .plan import Point


@dataclasses.dataclass(frozen=True)
class Target:
    """`under` None: `field` of `over` itself."""

    text: str
    over: Point
    under: Point | None
    field: str
    bound: float
    at_most: bool = False
    stretch: float | None = None

    def value(self, samples):
        if self.under is None:
            return samples.median(self.over, self.field)
        return samples.ratio(self.over, self.under, self.field)

    def is_met(self, value, bound):
        return value <= bound if self.at_most else value >= bound

    def wanted(self):
        sign = "≤" if self.at_most else "≥"
        if self.under is None:
            stretch = f" (stretch {self.stretch:,.0f})" if self.stretch else ""
            return f"{sign} {self.bound:,.0f}{stretch}"
        stretch = f" (stretch {self.stretch:g})" if self.stretch else ""
        return f"{sign} {self.bound:g}{stretch}"


def _rushgate(work, connections=64, depth=1, open_loop=False):
    return Point("rushgate", work, connections, depth, open_loop)


def _echo(connections, depth, open_loop=False):
    return Point("echo-tokio", "echo", connections, depth, open_loop)


def _all():
    refusal, rate = _rushgate("sold_out"), "requests_per_s"
    deep = _rushgate("sold_out", depth=16)
    yield Target("refusal / echo tokio, 64×1", refusal, _echo(64, 1), rate, 0.85, stretch=0.92)
    yield Target("refusal / nginx + Lua, 64×1", refusal, Point("nginx-lua", "sold_out", 64, 1), rate, 2.0)
    many = _rushgate("sold_out", connections=1024)
    yield Target("refusal / echo tokio, 1024×1", many, _echo(1024, 1), rate, 0.85)
    yield Target("p99 of refusal / of echo tokio, 1024×1", many, _echo(1024, 1), "p99_us", 1.5, at_most=True)
    yield Target("refusals/s, 64×16", deep, None, rate, 2_000_000, stretch=3_000_000)
    yield Target("refusal / echo tokio, 64×16", deep, _echo(64, 16), rate, 0.45)
    yield Target("refusal / nginx + Lua, 64×16", deep, Point("nginx-lua", "sold_out", 64, 16), rate, 15)
    yield Target("refusal / Redis script sold out, 64×16", deep, Point("redis-script", "sold_out", 64, 16), rate, 4)
    yield Target("refusals/s, 64×64", _rushgate("sold_out", depth=64), None, rate, 3_000_000)
    for depth, bound in ((1, 0.95), (64, 0.75)):
        yield Target(f"refusal with every rung on / off, 64×{depth}", _rushgate("sold_out", depth=depth),
                     _rushgate("sold_out_no_rungs", depth=depth), rate, bound)
    for depth in (1, 16, 64):
        yield Target(f"refusal on service / on app connections, 64×{depth}",
                     _rushgate("sold_out_service", depth=depth), _rushgate("sold_out", depth=depth), rate, 0.6)
    for work, name in (("already", "duplicate"), ("result", "RESULT"), ("activity", "ACTIVITY")):
        for depth in (1, 16, 64):
            yield Target(f"{name} / refusal, 64×{depth}", _rushgate(work, depth=depth),
                         _rushgate("sold_out", depth=depth), rate, 0.8)
    yield Target("winners on SQLite FULL / bare inserts of the same rows and transactions", _rushgate("winners", depth=64),
                 Point("sqlite-inserts", "winners_same_batches", 1, 1), rate, 0.5)
    for field, bound in (("p50_us", 1.4), ("p99_us", 1.5)):
        yield Target(f"open loop at half of the maximum: {field[:3]} of refusal / of echo tokio",
                     _rushgate("sold_out", open_loop=True), _echo(64, 1, True), field, bound, at_most=True)


TARGETS = list(_all())
