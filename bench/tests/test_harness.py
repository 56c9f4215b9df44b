"""What bench/run makes of its samples: python3 -m unittest discover -s bench/tests"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from harness import report  # noqa: E402
from harness.errors import BadMeasurement  # noqa: E402
from harness.generators import sample  # noqa: E402
from harness.main import START  # noqa: E402
from harness.others import check_sold  # noqa: E402
from harness.plan import CONTENDERS, Point, points  # noqa: E402
from harness.samples import Samples  # noqa: E402
from harness.targets import TARGETS  # noqa: E402

REFUSAL, ECHO = Point("rushgate", "sold_out", 64, 1), Point("echo-tokio", "echo", 64, 1)
ABOUT = {
    "machine": {"cpu": "A CPU", "cores": 2, "memory_mib": 1, "kernel": "6", "busy_before": 0.0}, "versions": {"redis": None},
    "revision": "abc", "date": "today", "mode": "full", "rounds": 3, "seconds": 1, "failures": ["round 1, x: gone"],
}


def three_rounds():
    samples = Samples()
    for number, (refusals, echoes) in enumerate([(90, 100), (50, 50), (40, 100)], 1):
        samples.add(REFUSAL, number, sample(refusals, 4_000.0, 20.0, None, 1))
        samples.add(ECHO, number, sample(echoes, 3_000.0, 20.0, 40.0, 1))
    return samples


class Harness(unittest.TestCase):
    def test_every_contender_starts_and_every_target_is_measured_in_the_full_run(self):
        self.assertEqual(set(START), set(CONTENDERS))
        full = points(False, CONTENDERS)
        self.assertEqual(len(full), len(set(full)))
        for target in TARGETS:
            self.assertIn(target.over, full)
            self.assertTrue(target.under is None or target.under in full, target.text)
        self.assertEqual([point.depth for point in points(False, ["sqlite-inserts"])], [4096])
        self.assertLessEqual(set(points(True, CONTENDERS)), set(full))
        self.assertEqual({point.contender for point in points(True, ["fastapi"])}, {"fastapi"})

    def test_every_work_has_a_name_in_the_tables(self):
        samples = Samples()
        for point in points(False, CONTENDERS):
            samples.add(point, 1, sample(1, 1.0, 1.0, 1.0, 1))
        self.assertIn("rungs off", report.markdown(ABOUT, samples))

    def test_the_maximum_is_measured_before_the_open_loop_that_needs_it(self):
        for quick in (False, True):
            chosen = points(quick, CONTENDERS)
            for place, point in enumerate(chosen):
                if point.open_loop:
                    self.assertIn((point.contender, point.work, 64, 1, False), [
                        (p.contender, p.work, p.connections, p.depth, p.open_loop) for p in chosen[:place]])

    def test_a_ratio_is_the_median_of_the_rounds_ratios(self):
        samples = three_rounds()
        self.assertEqual(samples.median(REFUSAL, "requests_per_s"), 50)
        self.assertEqual(samples.ratio(REFUSAL, ECHO, "requests_per_s"), 0.9)
        self.assertIsNone(samples.ratio(REFUSAL, ECHO, "p99_us"))
        self.assertEqual(samples.latest(ECHO, "requests_per_s"), 100)
        self.assertEqual(samples.spread(ECHO), 1.0)

    def test_a_target_is_met_from_its_bound_on(self):
        least, most = TARGETS[0], next(target for target in TARGETS if target.at_most)
        self.assertTrue(least.is_met(0.85, least.bound) and not least.is_met(0.849, least.bound))
        self.assertTrue(most.is_met(1.5, most.bound) and not most.is_met(1.51, most.bound))

    def test_results_are_json_with_nulls_and_a_table_with_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            report.write(pathlib.Path(folder), ABOUT, three_rounds())
            told = json.loads((pathlib.Path(folder) / "latest.json").read_text())
            table = (pathlib.Path(folder) / "latest.md").read_text()
        self.assertEqual(told["results"][0], {
            "contender": "rushgate", "work": "sold_out", "connections": 64, "depth": 1, "requests_per_s": 50,
            "server_cpu_ns": 4000.0, "p50_us": 20.0, "p99_us": None, "open_loop": False})
        self.assertIn("| refusal / echo tokio, 64×1 | 0.90 | ≥ 0.85 (stretch 0.92) | met |", table)
        self.assertIn("| 64 × 1 | 3 µs | 4 µs | 1 µs |", table)
        self.assertIn("- round 1, x: gone", table)

    def test_a_script_that_sold_something_else_than_was_answered_is_no_measurement(self):
        told = sample(500.0, None, 1, 1, answered=1000)
        check_sold(1000, told, wins=True)
        check_sold(0, told, wins=False)
        for units, wins in ((980, True), (1, False)):
            with self.assertRaises(BadMeasurement):
                check_sold(units, told, wins)


if __name__ == "__main__":
    unittest.main()
