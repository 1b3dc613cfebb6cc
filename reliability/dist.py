"""`make dist`: wheel and sdist, built twice, byte for byte alike, installed into empty environments and tested."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from reliability.record import ROOT

__all__ = ["build", "main"]

TESTS = (
    "test_bounds.py",
    "test_objectives.py",
    "test_schedules.py",
    "test_exact.py",
    "test_draws.py",
    "test_queues.py",
)
TWINS = ("reference.py", "cases.py", "conftest.py")


def main() -> int:
    """Build, compare, install, test."""
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        first, second = (build(Path(folder) / name) for name in "ab")
        for name in first.keys() | second.keys():
            if first.get(name) != second.get(name):
                print(f"dist: {name} differs between two builds")
                return 1
        shutil.copytree(Path(folder) / "a", out)
        for path in sorted(out.iterdir()):
            try_out(path, Path(folder) / f"env-{path.suffix[1:]}")
    for name, digest in sorted(first.items()):
        print(f"dist: {name} sha256 {digest}, the same twice, installed and tested")
    return 0


def build(folder: Path) -> dict[str, str]:
    """Name → sha256 of what a build of the tree makes, dated by the last commit."""
    asked = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
    when = os.environ.get("SOURCE_DATE_EPOCH") or asked.stdout.strip() or "1700000000"
    words = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": when})
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def try_out(package: Path, environment: Path) -> None:
    """The command, and the tests of the core, with what `pip install mlcpc[cli]` brings and nothing of the checkout."""
    run([sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    run(
        [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            ROOT / "constraints.txt",
            f"{package}[cli]",
            "pytest",
            "hypothesis",
        ]
    )
    tests = environment / "tests"
    tests.mkdir()
    for name in (*TESTS, *TWINS):
        shutil.copy(ROOT / "tests" / name, tests)
    run([environment / "bin" / "mlcpc", "bounds", "--m", "128", "--n", "128", "--alpha", "0.05"], tests)
    run([environment / "bin" / "mlcpc", "demo", "--help"], tests)
    run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests], tests)
    if package.suffix == ".whl":
        names = zipfile.ZipFile(package).namelist()
        assert "mlcpc/py.typed" in names
        assert not [name for name in names if not name.startswith("mlcpc")], "a wheel holds the library alone"


def run(words: list[object], folder: Path | None = None) -> None:
    subprocess.run(list(map(str, words)), check=True, cwd=folder, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
