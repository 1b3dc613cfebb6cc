"""`python guard.py GRACE PROGRAM [ARGUMENT ...]`: a command that never outlives whoever started it.

Its standard input is a pipe from the starter, which closes when the starter ends, even by SIGKILL. Then, or when the
guard is sent SIGINT or SIGTERM, the command is asked to leave, and after GRACE seconds killed with all its children; at
once when a byte comes through the pipe. Unlike PR_SET_PDEATHSIG alone this reaches grandchildren and the deaf, and is
not Linux's alone. Imports next to nothing: there is one of these for each run.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from types import FrameType

PR_SET_PDEATHSIG = 1
"""of <sys/prctl.h>"""


def main(grace: float, command: list[str]) -> int:
    """The command's exit code, as a shell has it: 128 + number for a signal."""
    asked: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def kill() -> None:
        if child is not None and child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)

    def ask(number: int, frame: FrameType | None = None) -> None:
        asked.append(number)
        if child is None:
            return
        child.send_signal(number)
        timer = threading.Timer(grace, kill)
        timer.daemon = True
        timer.start()

    def watch() -> None:
        while os.read(0, 1):
            kill()
        if not asked:
            ask(signal.SIGTERM)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def when_i_die() -> None:  # Ray kills a leaving worker's children, us too, but not the command
        if library is not None:
            library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=when_i_die)
    except OSError as error:
        print(f"{command[0]} does not start: {error}", file=sys.stderr)
        return 127
    if asked:  # before there was anybody to ask
        ask(asked[0])
    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # what it left behind would hold memory and the GPU
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
