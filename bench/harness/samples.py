"""What was measured, by point and round; medians over rounds."""

import statistics

FIELDS = ["requests_per_s", "server_cpu_ns", "p50_us", "p99_us"]


class Samples:
    def __init__(self):
        self._rounds = {}

    def add(self, point, round_number, sample):
        self._rounds.setdefault(point, {})[round_number] = sample

    def points(self):
        return list(self._rounds)

    def latest(self, point, field):
        """Of the last round that has it."""
        rounds = self._rounds.get(point)
        return rounds[max(rounds)][field] if rounds else None

    def note(self, point):
        """What the last round has to say beside its figures; mostly nothing."""
        rounds = self._rounds[point]
        return rounds[max(rounds)].get("note")

    def median(self, point, field):
        values = [sample[field] for sample in self._rounds.get(point, {}).values() if sample[field] is not None]
        return statistics.median(values) if values else None

    def spread(self, point):
        """Greatest against least rate, less one: how much the rounds differ."""
        rates = [sample["requests_per_s"] for sample in self._rounds[point].values()]
        return max(rates) / min(rates) - 1

    def ratio(self, over, under, field):
        """Median of the rounds' ratios: what slows a whole round down is in both."""
        ratios = []
        for number, sample in self._rounds.get(over, {}).items():
            other = self._rounds.get(under, {}).get(number)
            if other and sample[field] is not None and other[field]:
                ratios.append(sample[field] / other[field])
        return statistics.median(ratios) if ratios else None
