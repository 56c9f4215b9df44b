"""What has to be there before anything is measured: a Python environment with matplotlib, and release binaries.

Runs first, in the foreground; a step that fails ends the program with the command that failed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
# Below target/, which is ignored: removed with everything else that was built.
VENV = ROOT / "target" / "scale-venv"
BINARIES = ROOT / "target" / "release"
FLOOR = ROOT / "bench" / "scaling" / "floor"
FLOOR_TARGET = ROOT / "target" / "floor"
FLOOR_BINARY = FLOOR_TARGET / "release" / "rushgate-floor"


def say(text: str) -> None:
    """Progress, for people; results go to files."""
    print(f"scale: {text}", file=sys.stderr, flush=True)


def run(*command: str) -> None:
    """Runs a step to its end; its output is progress, too."""
    if subprocess.run(command, cwd=ROOT, stdout=sys.stderr).returncode != 0:
        sys.exit(f"scale: this failed: {' '.join(command)}")


def enter_environment() -> None:
    """Continues inside the environment, which is made when it is missing; returns once inside."""
    python = VENV / "bin" / "python"
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not python.exists() or subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode != 0:
        say(f"making {VENV.relative_to(ROOT)} with matplotlib")
        shutil.rmtree(VENV, ignore_errors=True)
        if subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True).returncode != 0:
            sudo = [] if os.geteuid() == 0 else ["sudo"]
            run(*sudo, "apt-get", "update", "-qq")
            run(*sudo, "apt-get", "install", "-y", "-qq", "python3-venv")
            shutil.rmtree(VENV, ignore_errors=True)
            run(sys.executable, "-m", "venv", str(VENV))
        run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "matplotlib")
    os.execv(python, [str(python), *sys.argv])


def build() -> None:
    """Release binaries of the workspace as it stands."""
    if shutil.which("cargo") is None:
        sys.exit("scale: cargo is missing; install Rust from https://rustup.rs")
    say("building release binaries")
    run("cargo", "build", "--release", "--workspace", "--locked")
    for name in ("rushgate", "rushgate-loadgen"):
        if not (BINARIES / name).exists():
            sys.exit(f"scale: {BINARIES / name} is missing after the build")
    build_floor()


def build_floor() -> None:
    """The bare task per connection, a workspace of its own."""
    run("cargo", "build", "--release", "--locked", "--manifest-path", str(FLOOR / "Cargo.toml"),
        "--target-dir", str(FLOOR_TARGET))


def echo_binary() -> Path | None:
    """The bare echo server, the floor of every request; none where the workspace does not build it."""
    binary = BINARIES / "rushgate-echo"
    return binary if binary.exists() else None
