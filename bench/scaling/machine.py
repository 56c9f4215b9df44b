"""Where the numbers come from: the machine, its limits, versions, and the revision that was measured."""

import datetime
import os
import platform
import resource
import subprocess
from pathlib import Path

from .preparation import ROOT

# What is limited here and matters to many connections.
SETTINGS = {
    "somaxconn": "net/core/somaxconn",
    "tcp_max_syn_backlog": "net/ipv4/tcp_max_syn_backlog",
    "tcp_syncookies": "net/ipv4/tcp_syncookies",
    "ip_local_port_range": "net/ipv4/ip_local_port_range",
}


def output(*command: str) -> str:
    """What a command printed, or nothing."""
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def stamp() -> dict:
    """Which revision, and when; every section of the results carries it."""
    changed = output("git", "status", "--porcelain", "--untracked-files=no", "--", "src", "loadgen", "Cargo.lock")
    return {
        "revision": output("git", "rev-parse", "HEAD"),
        "has_uncommitted_sources": bool(changed),
        "taken_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load_average": os.getloadavg()[0],
    }


def cpu_model() -> str:
    """As the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def describe() -> dict:
    """The machine and its software."""
    memory_kib = int(Path("/proc/meminfo").read_text().split("MemTotal:", 1)[1].split()[0])
    settings = {}
    for name, file in SETTINGS.items():
        words = (Path("/proc/sys") / file).read_text().split()
        settings[name] = [int(word) for word in words] if len(words) > 1 else int(words[0])
    settings["descriptors_per_process"] = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return {
        "machine": {"cpu": cpu_model(), "cores": os.cpu_count(), "memory_bytes": memory_kib * 1024},
        "versions": {
            "kernel": platform.release(),
            "rustc": output("rustc", "--version"),
            "python": platform.python_version(),
        },
        "settings": settings,
    }
