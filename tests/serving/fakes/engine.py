"""A server that speaks enough of the OpenAI API to be started, asked and stopped; see MODES."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

MODES = {
    "good": "works",
    "slow": "is healthy at once and works after a second",
    "never": "listens and is never healthy",
    "deaf": "accepts connections and never answers",
    "exits": "prints an error and exits at once",
    "late": "exits after its first health check",
    "oom": "runs out of GPU memory while it starts",
    "falls": "is healthy, answers its first request with 500, and ends a second after that",
    "breaking": "is healthy, breaks its first stream, and ends a second after that",
    "liar": "is healthy, and answers 200 with an empty stream",
    "breaks": "is healthy, and answers 500",
    "errors": "is healthy, and sends an error event after 200",
    "stubborn": "works and ignores SIGTERM",
    "brood": "works and has a child in a session of its own that ignores SIGTERM",
}
BROOD = "import signal,time,sys;signal.signal(signal.SIGTERM,signal.SIG_IGN);time.sleep(300)"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    started = time.monotonic()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if MODE == "deaf":
            time.sleep(300)
        if MODE == "late":
            self.answer(503, b"")
            print("ValueError: no such layer", flush=True)
            sys.stdout.flush()
            signal.raise_signal(signal.SIGKILL)
        self.answer(503 if MODE == "never" else 200, b"{}")

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        asked = json.loads(self.rfile.read(size))
        if MODE == "slow" and time.monotonic() - self.started < 1:
            self.answer(503, b"loading")
        elif MODE in ("falls", "breaking"):
            self.fall()
        elif MODE == "breaks":
            self.answer(500, b'{"error": "index_copy_(): shapes differ"}')
        else:
            self.answer(200, stream(asked), "text/event-stream")

    def fall(self) -> None:
        """Answer badly, take no connection any more, and end a little later."""
        if MODE == "falls":
            self.answer(500, b'{"error": "EngineCore encountered an issue"}')
        else:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b": wait\n\n")
        print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", flush=True)
        self.server.socket.close()
        self.connection.shutdown(socket.SHUT_RDWR)
        time.sleep(1)
        os._exit(1)


def stream(asked: dict[str, object]) -> bytes:
    if MODE == "liar":
        return b"data: [DONE]\n\n"
    if MODE == "errors":
        return b'data: {"error": {"message": "head dimension 96"}}\n\ndata: [DONE]\n\n'
    count = int(str(asked["max_tokens"]))
    chunks = [{"choices": [{"index": 0, "text": " a"}]} for _ in range(count)]
    chunks[-1]["choices"][0] |= {"finish_reason": "length"}  # type: ignore[operator]
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": count}}
    return b"".join(b"data: %s\n\n" % json.dumps(c).encode() for c in [*chunks, usage]) + (
        b"data: [DONE]\n\n"
    )


def main() -> None:
    if MODE == "exits":
        print("INFO: loading")
        sys.exit("RuntimeError: no kernel image is available")
    if MODE == "oom":
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96 GiB")
    if MODE in ("stubborn", "brood"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pids = [subprocess.Popen([sys.executable, "-c", BROOD], start_new_session=True).pid] * (
        MODE == "brood"
    )
    server = ThreadingHTTPServer(("127.0.0.1", int(PORT)), Handler)
    server.daemon_threads = True
    if PIDS:
        part = Path(f"{PIDS}.part")  # whoever waits for the file finds it whole
        part.write_text(json.dumps([os.getpid(), *pids]))
        part.rename(PIDS)
    server.serve_forever(poll_interval=0.05)


if __name__ == "__main__":
    MODE, PORT, PIDS = sys.argv[1:4]
    main()
