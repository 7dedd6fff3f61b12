"""Stands in for `vllm serve MODEL --port P ...`: streams token by token, until it is told to die.

Variables: FAKE_PIDS (file that gets the process id), FAKE_DIES_AFTER (requests after which it exits
in the middle of an answer), FAKE_LINGERS_S (seconds from its last byte to the end of its process),
FAKE_TOKEN_S (seconds per token).
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DIES_AFTER = int(os.environ.get("FAKE_DIES_AFTER", "0"))
LINGERS_S = float(os.environ.get("FAKE_LINGERS_S", "0"))
TOKEN_S = float(os.environ.get("FAKE_TOKEN_S", "0.01"))
answered = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        body = b"vllm:num_requests_running 1\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        global answered  # noqa: PLW0603
        answered += 1
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for index in range(int(asked["max_tokens"])):
            time.sleep(TOKEN_S)
            if DIES_AFTER and answered > DIES_AFTER and index:
                self.die()
            last = index + 1 == int(asked["max_tokens"])
            choice = {"index": 0, "text": " a", "finish_reason": "length" if last else None}
            self.event({"choices": [choice]})
        count = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": index + 1}
        self.event({"choices": [], "usage": count})
        self.piece(b"data: [DONE]\n\n")
        self.piece(b"")

    def die(self) -> None:
        """Break all connections, take no new one, and end a little later, as large processes do."""
        print("RuntimeError: the device fell off the bus", flush=True)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in range(3, 256):
            with suppress(OSError):
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    os.dup2(nowhere, number)
        time.sleep(LINGERS_S)
        os._exit(3)

    def event(self, data: dict[str, object]) -> None:
        self.piece(b"data: %s\n\n" % json.dumps(data).encode())

    def piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it has to be killed
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if pids := os.environ.get("FAKE_PIDS"):
        with Path(pids).open("a") as file:
            file.write(f"{os.getpid()}\n")
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    main()
