"""Servers on this machine for tests, until the end of a block."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def listening(made):
    """The address of a server that answers until the end of the block."""
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_address[1]}"
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


@contextmanager
def answering(answer, software="", owner=None, get=None):
    """A server that answers every completion by answer(payload, number of the call), which gives bytes, an
    object, (status, object), or does what it wants with the handler that is its third argument. It says that
    it is `software`, and its model that of `owner`; or get(handler) answers what is no completion."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = software or BaseHTTPRequestHandler.server_version
        calls = 0

        def do_GET(self):
            if get is not None:
                return get(self)
            listed = json.dumps({"data": [{"id": "model", "owned_by": owner}]}).encode()
            return self.give(*((404, b"") if owner is None or self.path != "/v1/models" else (200, listed)))

        def do_POST(self):
            payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            type(self).calls += 1
            found = answer(payload, self.calls - 1, self)
            if found is not None:
                status, content = found if isinstance(found, tuple) else (200, found)
                self.give(status, content if isinstance(content, bytes) else json.dumps(content).encode())

        def give(self, status, content):
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            """Connections that break are what is tested."""

    with listening(Quiet(("127.0.0.1", 0), Handler)) as url:
        yield url
