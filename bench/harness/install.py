"""Gets what the contenders need: Debian packages, a Python environment, release binaries."""

import os
import shutil
import subprocess
import sys

from .errors import CannotStart
from .paths import ROOT, VENV, WORK

# What a contender needs: (what shows that it is there, Debian package).
PACKAGES = {
    "redis-script": [("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")],
    "nginx-lua": [
        ("nginx", "nginx"),
        ("/usr/lib/nginx/modules/ngx_http_lua_module.so", "libnginx-mod-http-lua"),
        ("redis-server", "redis-server"),
        ("wrk", "wrk"),
    ],
    "fastapi": [("redis-server", "redis-server"), ("wrk", "wrk"), ("/usr/share/doc/python3-venv", "python3-venv")],
}
PYTHON_PACKAGES = ["fastapi", "uvicorn", "uvloop", "httptools", "redis[hiredis]"]
# Debian's is compiled for speed; whichever runs this script may not be.
PYTHON = "/usr/bin/python3"
CRATES = ["rushgate", "rushgate-loadgen", "rushgate-echo", "rushgate-inserts"]
# Of bench/production.
PRODUCTION = "production"
PRODUCTION_CRATES = ["rushgate", "rushgate-loadgen", "rushgate-servers"]
PACKAGES[PRODUCTION] = [
    ("redis-server", "redis-server"), ("/usr/sbin/mariadbd", "mariadb-server"), ("mariadb", "mariadb-client"),
]


def install(contenders):
    """Installs what these contenders need and is not there."""
    WORK.mkdir(parents=True, exist_ok=True)
    _packages(contenders)
    if "fastapi" in contenders:
        _environment()
    _build()


def install_production():
    """The same for bench/production."""
    WORK.mkdir(parents=True, exist_ok=True)
    _packages([PRODUCTION, "nginx-lua"])
    _build(PRODUCTION_CRATES)


def _is_there(sign):
    return os.path.exists(sign) if sign.startswith("/") else shutil.which(sign) is not None


def _packages(contenders):
    wanted = [pair for name in contenders for pair in PACKAGES.get(name, [])]
    if any(name != "sqlite-inserts" for name in contenders):
        wanted.append(("taskset", "util-linux"))
    missing = sorted({package for sign, package in wanted if not _is_there(sign)})
    if not missing:
        return
    sudo = [] if os.getuid() == 0 else ["sudo"]
    # Debian starts what it installs; nothing may listen or burn CPU beside what is measured.
    policy = "/usr/sbin/policy-rc.d"
    keep = "" if os.path.exists(policy) else f"trap 'rm -f {policy}' EXIT; printf 'exit 101\\n' > {policy}; chmod +x {policy}; "
    script = f"set -e; {keep}apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq {' '.join(missing)}"
    _run([*sudo, "sh", "-c", script], f"installing {', '.join(missing)}",
         f"install {' '.join(missing)} by hand, or leave the contenders that need it out with --only")
    still = [sign for sign, package in wanted if not _is_there(sign)]
    if still:
        raise CannotStart(f"still missing after the installation: {', '.join(still)}")


def _environment():
    if (VENV / "ready").exists():
        return
    shutil.rmtree(VENV, ignore_errors=True)
    hint = "apt-get install python3-venv, or leave FastAPI out with --only"
    _run([PYTHON, "-m", "venv", str(VENV)], "making a Python environment", hint)
    _run([str(VENV / "bin/pip"), "install", "-q", *PYTHON_PACKAGES], "installing FastAPI",
         "see what pip says above; pip needs a package index that it can reach")
    (VENV / "ready").touch()


def _build(crates=tuple(CRATES)):
    command = ["cargo", "build", "--release", "--locked"]
    for crate in crates:
        command += ["-p", crate]
    _run(command, "building the release binaries", "see what cargo says above")


def _run(command, what, hint):
    print(f"bench/run: {what}", file=sys.stderr)
    try:
        done = subprocess.run(command, check=False, cwd=ROOT, stdout=sys.stderr)
    except FileNotFoundError:
        raise CannotStart(f"{what}: {command[0]} is missing; {hint}") from None
    if done.returncode != 0:
        raise CannotStart(f"{what} failed with exit code {done.returncode}; {hint}")
