"""What machine it is, and which versions run on it."""

import os
import platform
import re
import subprocess
import time

from .paths import ROOT, VENV


def machine():
    cpu = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    return {
        "cpu": cpu.group(1).strip() if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "memory_mib": int(memory.group(1)) // 1024 if memory else None,
        "kernel": platform.release(),
    }


def busy(seconds=1.0):
    """The share of all cores that is not idle now."""
    def read():
        # user, nice, system, idle, iowait, …; guest time is in user already.
        times = [int(ticks) for ticks in _read("/proc/stat").splitlines()[0].split()[1:9]]
        return sum(times), times[3] + times[4]

    (all_before, idle_before) = read()
    time.sleep(seconds)
    (all_after, idle_after) = read()
    return round(1 - (idle_after - idle_before) / max(1, all_after - all_before), 2)


def revision():
    """The commit, and whether the tree differs from it."""
    commit = _first(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], r"\w+")
    changed = _output(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]).splitlines()
    # Results of an earlier run are no change of what is measured.
    changed = [line for line in changed if "bench/results/" not in line]
    return commit + ("+changes" if changed else "") if commit else None


def versions(contenders):
    """Of everything that takes part."""
    found = {"rustc": _first(["rustc", "--version"], r"rustc (\S+)")}
    manifest = _read(ROOT / "Cargo.lock")
    for crate in ("rushgate", "tokio", "mio", "libsqlite3-sys"):
        match = re.search(rf'^name = "{crate}"\nversion = "([^"]+)"', manifest, re.MULTILINE)
        found[crate] = match.group(1) if match else None
    if {"redis-script", "nginx-lua", "fastapi"} & set(contenders):
        found["redis"] = _first(["redis-server", "--version"], r"v=(\S+)")
    if {"nginx-lua", "fastapi"} & set(contenders):
        found["wrk"] = _first(["wrk", "--version"], r"wrk (?:debian/)?(\S+)")
    if "nginx-lua" in contenders:
        found["nginx"] = _first(["nginx", "-v"], r"nginx/(\S+)")
        found["lua-nginx-module"] = _first(["dpkg-query", "-W", "libnginx-mod-http-lua"], r"\s(\S+)")
    if "fastapi" in contenders:
        found["python"] = _first([str(VENV / "bin/python"), "--version"], r"Python (\S+)")
        frozen = _output([str(VENV / "bin/pip"), "freeze"])
        for package in ("fastapi", "uvicorn", "uvloop", "redis"):
            match = re.search(rf"^{package}==(\S+)$", frozen, re.MULTILINE)
            found["redis-py" if package == "redis" else package] = match.group(1) if match else None
    return found


def _first(command, pattern):
    match = re.search(pattern, _output(command))
    return (match.group(1) if match.groups() else match.group(0)) if match else None


def _output(command):
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout + done.stderr


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
