"""deltactl health, by whose exit code a container is called healthy."""
import contextlib
import http.server
import json
import socket
import ssl
import threading

import pytest

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


@contextlib.contextmanager
def trickling(context=None):
    """The port of a server whose answer goes on for ever, a byte at a time."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with contextlib.suppress(OSError):
                    connection = context.wrap_socket(connection, server_side=True) if context else connection
                    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                    while not over.wait(0.05):
                        connection.sendall(b"x")
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_trickles_is_not_waited_for(tls, pki):
    """The timeout is of the whole call, not of each byte."""
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pki / "one.pem", pki / "one.key")
    with trickling(context) as port:
        url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        result = ctl("health", "--server", url, "--timeout", "0.5", *(["--cacert", pki / "ca.pem"] if tls else []), check=False)
    assert result.returncode == 1 and "no answer: the time is up" in result.stderr, result
