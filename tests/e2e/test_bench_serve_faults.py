"""deltactl bench-serve against servers that misbehave: each fault is named and counted, none stops or slows the load."""
import contextlib
import json
import signal
import socket
import struct
import subprocess
import threading

import pytest

from conftest import BUILD, PASSING, SLOW, ctl, free_port


def sse(*events) -> bytes:
    return b"".join(b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
FINISH = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}


def usage(tokens: int) -> dict:
    return {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}}


def stream(*events) -> bytes:
    return HEAD + b"".join(chunked(sse(e)) for e in events) + b"0\r\n\r\n"


def status(code: int, message: str) -> bytes:
    body = json.dumps({"error": {"message": message}}).encode()
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (code, len(body), body)


# model → what the server writes; then "keep" the connection, "close" or "reset" it, or "wait" for the client to leave.
BEHAVIOUR = {
    "good": (stream(TOKEN, TOKEN, FINISH, usage(2), b"[DONE]"), "keep"),
    "good_closing": (stream(TOKEN, FINISH, usage(2), b"[DONE]"), "close"),
    "early": (HEAD + chunked(sse(TOKEN)), "close"),
    "reset": (HEAD + chunked(sse(TOKEN)), "reset"),
    "mute": (b"", "close"),
    "garbage": (b"\x00\xff no HTTP at all\r\n\r\n", "close"),
    "bad_json": (stream(TOKEN, b'{"choices": [', b"[DONE]"), "keep"),
    "no_done": (stream(TOKEN, FINISH, usage(2)), "keep"),
    "too_many": (stream(TOKEN, FINISH, usage(99), b"[DONE]"), "keep"),
    "dying": (stream(TOKEN, {"error": {"message": "the engine died"}}), "keep"),
    "full": (status(429, "come back later"), "keep"),
    "broken": (status(500, "something broke"), "keep"),
    "silent": (b"", "wait"),
    "stalling": (HEAD + chunked(sse(TOKEN)), "wait"),
}


class FakeServer:
    """Answers as BEHAVIOUR says of the model asked for."""

    def __init__(self, connections: int | None = None):
        """connections: so many are accepted, then nobody listens."""
        self.connections = connections
        self.asked = threading.Event()  # a request has come
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while self.connections is None or self.connections > 0:
                connection = self.listener.accept()[0]
                if self.connections is not None:
                    self.connections -= 1
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()
        self.listener.close()

    def serve(self, connection: socket.socket):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as reader:
            while reader.readline():
                length = 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                self.asked.set()
                data, then = BEHAVIOUR[json.loads(reader.read(length))["model"]]
                connection.sendall(data)
                if then == "reset":
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if then == "wait":
                    reader.read(1)
                if then != "keep":
                    connection.shutdown(socket.SHUT_RDWR) if then == "close" else None
                    return


@pytest.fixture(scope="module")
def fake():
    server = FakeServer()
    yield server
    server.listener.close()


def bench(url, *arguments, code: int) -> dict:
    result = ctl("bench-serve", "--url", url, "--json", "--output", 8, *arguments, check=False)
    assert result.returncode == code, f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return json.loads(result.stdout)


@pytest.mark.parametrize("model, error, words", [
    ("early", "lost", "before the answer had ended"),
    ("reset", "lost", ""),
    ("mute", "lost", "without an answer"),
    ("garbage", "malformed", "not an HTTP/1.1 response"),
    ("bad_json", "malformed", "not JSON"),
    ("no_done", "malformed", "without [DONE]"),
    ("too_many", "malformed", "99 completion tokens, at most 8"),
    ("dying", "error in answer", "the engine died"),
    ("broken", "500", "something broke"),
    ("silent", "timeout", "within"),
    ("stalling", "timeout", "within"),
])
def test_a_fault_is_named_and_the_rest_is_served(fake, model, error, words):
    timeout = 3 * PASSING if error == "timeout" else 300
    report = bench(fake.url, "--rate", 100, "--requests", 20, "--models", f"good,{model}", "--seed", 3, "--timeout", timeout, code=1)
    bad, good = report["models"][model], report["models"]["good"]
    assert bad["errors"] == {error: bad["requests"]} and bad["completed"] == 0 and bad["requests"] > 0
    assert good["errors"] == {} and good["completed"] == good["requests"] > 0
    assert report["faults"] == bad["requests"] and report["total"]["e2e_ms"]["count"] == good["requests"]
    assert report["error_details"][error].startswith(model + ": ") and words in report["error_details"][error]


def test_refusals_are_counted_and_are_no_fault_while_anything_is_served(fake):
    report = bench(fake.url, "--rate", 200, "--requests", 20, "--models", "good,full", "--seed", 3, "--slo", "e2e:600000", code=0)
    refused = report["models"]["full"]["requests"]
    assert report["total"]["errors"] == {"429": refused} and refused > 0 and report["faults"] == 0
    assert report["total"]["goodput"]["share"] == pytest.approx((20 - refused) / 20)
    assert "come back later" in report["error_details"]["429"]
    assert bench(fake.url, "--rate", 200, "--requests", 5, "--models", "full", code=1)["total"]["completed"] == 0


def test_an_open_loop_goes_on_while_nobody_answers(fake):
    report = bench(fake.url, "--rate", 400, "--requests", 120, "--models", "silent", "--timeout", 3 * PASSING, code=1)
    assert report["generator"]["most_in_flight"] == 120 and report["total"]["errors"] == {"timeout": 120}


def test_a_connection_that_the_server_gave_up_is_replaced(fake):
    report = bench(fake.url, "--concurrency", 2, "--requests", 60, "--models", "good_closing", code=0)
    assert report["total"]["completed"] == 60 and report["generator"]["most_in_flight"] == 2


def test_times_of_a_good_stream_are_reported(fake):
    report = bench(fake.url, "--concurrency", 2, "--requests", 20, "--models", "good", code=0)
    total = report["total"]
    assert total["output_tokens"] == 40 and total["prompt_tokens"] == 60
    assert total["ttft_ms"]["count"] == total["itl_ms"]["count"] == total["tpot_ms"]["count"] == 20


def test_nobody_listening():
    result = ctl("bench-serve", "--url", f"http://127.0.0.1:{free_port()}", "--concurrency", 1, "--requests", 1, check=False)
    assert result.returncode == 1 and "cannot connect" in result.stderr


def test_a_server_that_goes_away_is_a_fault_of_each_request_after():
    server = FakeServer(connections=1)  # of the command's first look; nobody listens after it
    report = bench(server.url, "--concurrency", 2, "--requests", 6, "--models", "good", code=1)
    assert sum(report["total"]["errors"].values()) == 6 and set(report["total"]["errors"]) <= {"no connection", "lost"}


def test_an_interrupt_ends_the_load_and_reports():
    server = FakeServer()
    command = [BUILD / "deltactl", "bench-serve", "--url", server.url, "--concurrency", "3", "--requests", "9", "--models", "silent", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert server.asked.wait(60 * SLOW)
        process.send_signal(signal.SIGINT)
        report = json.loads(process.communicate(timeout=60 * SLOW)[0])
    assert process.returncode == 1 and report["stopped"] and report["total"]["requests"] == 0
    assert report["generator"]["most_in_flight"] == 3
    server.listener.close()


def test_a_warm_up_that_fails_ends_the_command(fake):
    result = ctl("bench-serve", "--url", fake.url, "--rate", 1, "--requests", 1, "--models", "good,broken", "--warmup", 1, check=False)
    assert result.returncode == 1 and "warming up: 500" in result.stderr and "something broke" in result.stderr
