"""Very many connections: idle ones, slow ones, one that never reads. Memory stays bounded, others are served."""
import pathlib
import resource
import select
import socket
import time

import pytest
import yaml
from conftest import PASSING, SLOW, running, tiny_arguments

MANY = 10_000 if SLOW == 1 else 1_000
STREAMS = 2_000 if SLOW == 1 else 200


@pytest.fixture(autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = MANY + STREAMS + 500
    if hard != resource.RLIM_INFINITY and hard < need:
        pytest.skip(f"needs {need} file descriptors, the limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, need), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident(server) -> int:
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def configured(tmp_path, **server):
    path = tmp_path / "deltad.yaml"
    path.write_text(yaml.safe_dump({"server": server}))
    return ["--config", path, *tiny_arguments()]


def connect(server):
    one = socket.create_connection(("127.0.0.1", server.port), 60 * SLOW)
    one.settimeout(60 * SLOW)
    return one


def complete(server):
    return server.post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 8})[0]


def test_idle_connections_cost_little(tmp_path):
    with running(configured(tmp_path, idle_seconds=600), tmp_path) as server:
        assert complete(server) == 200
        before = resident(server)
        request = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        idle = []
        for _ in range(MANY):
            one = connect(server)
            one.sendall(request)  # each has been used once, as a kept connection has
            idle.append(one)
        for one in idle:
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
        each = (resident(server) - before) / MANY
        print(f"{MANY} idle connections: {each / 1024:.1f} KiB each")
        assert complete(server) == 200
        if SLOW == 1:
            assert each < 8 * 1024
        for one in idle[::100]:  # they still work
            one.sendall(request)
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
        for one in idle:
            one.close()


def read_streams(streams, seconds):
    """Reads server-sent events of all until each has ended; what came from each, and how many were under way together at most."""
    came = {one.fileno(): bytearray() for one in streams}
    by_number = {one.fileno(): one for one in streams}
    arriving = select.poll()
    for number in came:
        arriving.register(number, select.POLLIN)
    begun, most, open_now, end = set(), 0, set(came), time.monotonic() + seconds
    while open_now:
        assert time.monotonic() < end, f"{len(open_now)} streams have not ended"
        for number, _ in arriving.poll(1000):
            came[number] += by_number[number].recv(65536)
            begun.add(number)
            if b"data: [DONE]" in came[number]:
                arriving.unregister(number)
                open_now.discard(number)
        most = max(most, len(begun & open_now))
    return came.values(), most


def test_thousands_of_streams_beside_idle_connections(tmp_path):
    config = tmp_path / "deltad.yaml"
    config.write_text(yaml.safe_dump({"server": {"idle_seconds": 600}, "engine": {"max_running": STREAMS, "kv_cache": "1GiB"}}))
    with running(["--config", config, *tiny_arguments()], tmp_path) as server:
        assert complete(server) == 200
        idle = [connect(server) for _ in range(MANY)]
        for one in idle:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        for one in idle:
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
        before = resident(server)
        tokens = b"250" if SLOW == 1 else b"60"  # sanitizers take minutes for the longer ones
        body = b'{"model": "%s", "prompt": [5, 6, 7], "max_tokens": %s, "ignore_eos": true, "stream": true}'
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        streams = []
        for i in range(STREAMS):
            text = body % ((b"llama", b"row", b"two")[i % 3], tokens)
            one = connect(server)
            one.sendall(head % len(text) + text)
            streams.append(one)
        begun = time.monotonic()
        came, most = read_streams(streams, 300 * SLOW)
        seconds = time.monotonic() - begun
        grown = resident(server) - before
        events = [text.count(b"data: {") for text in came]
        print(f"{most} of {STREAMS} streams under way together beside {MANY} idle connections: {sum(events) / seconds:.0f} events a second, "
              f"{grown / STREAMS / 1024:.1f} KiB each with their keys and values")
        assert all(b"HTTP/1.1 200" in text and b'"finish_reason":"length"' in text for text in came)
        assert most > STREAMS * 0.9
        if SLOW == 1:
            assert grown < STREAMS * 200 * 1024
        for one in idle[::100]:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert one.recv(4096).startswith(b"HTTP/1.1 200")
        for one in idle + streams:
            one.close()


def test_slow_headers_stop_nobody(tmp_path):
    with running(configured(tmp_path, header_seconds=20 * PASSING), tmp_path) as server:
        before = resident(server)
        slow = []
        for _ in range(MANY):
            one = connect(server)
            one.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
            slow.append(one)
        begun = time.monotonic()
        for _ in range(3):
            for one in slow:
                try:
                    one.sendall(b"x")
                except ConnectionError:
                    pass  # cut off already
            for _ in range(5):
                assert complete(server) == 200
        print(f"{MANY} slow clients: {(resident(server) - before) / MANY / 1024:.1f} KiB each")
        # Each is told, and closed, once its header has taken too long, however often it sends a byte.
        answered = select.poll()
        by_number = {one.fileno(): one for one in slow}
        for number in by_number:
            answered.register(number, select.POLLIN)
        while by_number and time.monotonic() < begun + 60 * SLOW:
            for number, _ in answered.poll(1000):
                one = by_number.pop(number)
                answered.unregister(number)
                try:
                    assert one.recv(4096)[:12] in (b"HTTP/1.1 408", b"")
                except ConnectionError:
                    pass
                one.close()
        assert not by_number
        assert complete(server) == 200


def test_a_client_that_never_reads_costs_its_buffer(tmp_path):
    with running(configured(tmp_path), tmp_path) as server:
        assert complete(server) == 200
        before = resident(server)
        lazy = []
        for _ in range(8):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", server.port))
            # Pipelined requests whose answers nobody takes.
            one.settimeout(1)
            try:
                for _ in range(20_000):
                    one.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            except TimeoutError:
                pass
            lazy.append(one)
        grown = resident(server) - before
        print(f"8 clients that never read: {grown / 8 / 1024:.0f} KiB each")
        if SLOW == 1:
            assert grown < 8 * 2 * 1024 * 1024
        assert complete(server) == 200
        for one in lazy:
            one.close()
