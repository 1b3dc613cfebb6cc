"""A web server on this machine that sends one file slowly, in a process of its own; it knows about ranges."""

import contextlib
import hashlib
import os
import signal
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["CONTENT", "MD5", "Server"]

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()
BLOCK = 20_000
PAUSE = 0.004
"""seconds between blocks"""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        wanted = self.headers.get("Range") or ""
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        body = CONTENT[start:]
        if wanted and not body:
            self.send_error(416)
            return
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(body), BLOCK):
                self.wfile.write(body[at : at + BLOCK])
                time.sleep(PAUSE)

    def log_message(self, *arguments: object) -> None: ...


class Server:
    """While it is entered, there is one."""

    def __enter__(self) -> "Server":
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}/file"
        os.environ["no_proxy"] = "*"
        self.process = os.fork()
        if self.process == 0:
            try:
                server.serve_forever()
            finally:
                os._exit(0)
        server.socket.close()
        return self

    def __exit__(self, *error: object) -> None:
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
