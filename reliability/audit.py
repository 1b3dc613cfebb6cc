"""`make audit`: known vulnerabilities of what is installed, by pip-audit; says so where none can be asked for."""

import json
import subprocess
import sys

__all__ = ["judge", "main"]


def main() -> int:
    """1 where there are some."""
    words = [
        sys.executable,
        "-m",
        "pip_audit",
        "--local",
        "--skip-editable",
        "--format",
        "json",
        "--progress-spinner",
        "off",
    ]
    try:
        asked = subprocess.run(words, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return _say("skipped: no answer within five minutes", 0)
    return _say(*judge(asked.stdout, asked.stderr))


def judge(out: str, err: str) -> tuple[str, int]:
    """The sentence, and whether to fail.

    >>> judge('{"dependencies": [{"name": "a", "version": "1", "vulns": []}]}', "")
    ('1 packages, no known vulnerability', 0)
    >>> judge("", "No module named pip_audit")
    ('skipped: No module named pip_audit', 0)
    """
    try:
        packages = json.loads(out)["dependencies"]
    except (ValueError, KeyError):
        lines = [line for line in err.splitlines() if line.strip()]
        return f"skipped: {lines[-1] if lines else 'it said nothing'}", 0
    known = [package for package in packages if "vulns" in package]
    bad = [f"{p['name']} {p['version']}: {vuln['id']}" for p in known for vuln in p["vulns"]]
    if bad:
        return f"{len(bad)} known vulnerabilities: {'; '.join(bad)}", 1
    if not known:
        return "skipped: no advisories can be reached from here", 0
    return f"{len(known)} packages, no known vulnerability", 0


def _say(sentence: str, code: int) -> int:
    print(f"pip-audit: {sentence}")
    return code


if __name__ == "__main__":
    sys.exit(main())
