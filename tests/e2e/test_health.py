"""deltactl health, by whose exit code a container is called healthy."""
import http.server
import json
import threading

from conftest import ctl, free_port


def test_a_ready_server_is_healthy(tiny):
    result = ctl("health", "--server", tiny.url)
    assert result.stdout == "ready\n"
    assert ctl("health", "--server", tiny.url, "--live").stdout == "alive\n"
    assert json.loads(ctl("health", "--server", tiny.url, "--json").stdout) == {"ready": True, "status": 200, "reason": ""}


def test_nobody_there_is_a_failure_with_the_address():
    port = free_port()
    result = ctl("health", "--server", f"http://127.0.0.1:{port}", check=False)
    assert result.returncode == 1 and f"127.0.0.1:{port}" in result.stderr


class NotReady(http.server.BaseHTTPRequestHandler):
    """Answers as a server does that drains or still loads."""

    def do_GET(self):
        ready = self.path == "/ready"
        body = b'{"error": {"message": "the server is shutting down", "type": "unavailable"}}' if ready else b'{"status": "ok"}'
        self.send_response(503 if ready else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_server_that_is_not_ready_is_alive_only():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotReady) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        result = ctl("health", "--server", url, check=False)
        assert result.returncode == 1 and "/ready with 503: the server is shutting down" in result.stderr
        assert ctl("health", "--server", url, "--live").stdout == "alive\n"
        server.shutdown()
