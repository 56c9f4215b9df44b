"""Where things are."""

import os
import pathlib

BENCH = pathlib.Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
CONTENDERS = BENCH / "contenders"
RESULTS = BENCH / "results"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").resolve()
BINARIES = TARGET / "release"
# Everything that a run writes besides its results; may be deleted at any time.
WORK = TARGET / "bench"
VENV = WORK / "venv"
