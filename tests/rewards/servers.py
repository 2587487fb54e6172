"""A server of rewards, on this machine, that answers as a test says."""

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Answers each POST with what `answer(body)` returns: JSON, or a status and headers before it.

    Of an iterator the pieces are sent, and then the connection ends before the answer should.
    `asked` has the bodies that came, `headers` their headers.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer):
        self.answer, self.asked, self.headers = answer, [], []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/score"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def take(self, body, headers):
        with self.lock:
            self.asked.append(body)
            self.headers.append(headers)
        answered = self.answer(body)
        return answered if isinstance(answered, tuple) else (200, {}, answered)

    def handle_error(self, request, client_address):
        if not isinstance(sys.exception(), ConnectionError):  # else the answer was given up
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Speaks HTTP for `Server`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, answer = self.server.take(json.loads(body), dict(self.headers))
        self.send_response(status)
        self.close_connection = isinstance(answer, Iterator)
        if self.close_connection:
            pieces, length = answer, 10**6
        else:
            pieces = [answer if isinstance(answer, bytes) else json.dumps(answer).encode()]
            length = len(pieces[0])
        for name, value in ({"Content-Length": length} | headers).items():
            self.send_header(name, str(value))
        self.end_headers()
        for piece in pieces:
            self.wfile.write(piece)

    def log_message(self, *_):
        pass


def dying():
    """Return an answer that ends in the middle."""
    return iter([b'{"rewards": [1.0'])


def endless():
    """Yield an answer that never ends."""
    yield b"down"
    while True:
        time.sleep(0.02)
        yield b" "


def lengths(body):
    """Return the length of each completion, as a server of rewards answers."""
    return {"rewards": [float(len(text)) for text in body["completions"]]}
