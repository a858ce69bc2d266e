"""What a client without a key can take of the gRPC listener: connections, descriptors, memory. Raw frames of HTTP/2 by PyPI's h2."""
import contextlib
import pathlib
import socket
import threading

import grpc
import h2.config
import h2.connection
import h2.events
import h2.exceptions
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from conftest import SLOW, free_port, running, tiny_arguments


@contextlib.contextmanager
def grpc_daemon(folder, descriptors=None, grpc_keys=None, **server):
    port = free_port()
    config = folder / "deltad.yaml"
    config.write_text(yaml.safe_dump({"server": {**server, "grpc": {"listen": port, **(grpc_keys or {})}}}))
    with running(tiny_arguments("--config", config), folder, descriptors=descriptors) as daemon:
        daemon.grpc_port = port
        yield daemon


def healthy(daemon) -> bool:
    """Over a connection of its own."""
    with grpc.insecure_channel(f"127.0.0.1:{daemon.grpc_port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        with contextlib.suppress(grpc.RpcError):
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2 * SLOW)
            return answer.status == health_pb2.HealthCheckResponse.SERVING
    return False


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 10 * SLOW)


def descriptors_of(daemon) -> int:
    return len(list(pathlib.Path(f"/proc/{daemon.process.pid}/fd").iterdir()))


def resident(daemon) -> int:
    for line in pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_few_descriptors_are_survived(tmp_path):
    limit = 96
    with grpc_daemon(tmp_path, descriptors=(limit // 2, limit)) as daemon:
        assert f"limit of file descriptors: {limit}, raised from {limit // 2}" in daemon.log()
        assert "server.max_connections is 16384, but 96 file descriptors are enough for 16 on a listener" in daemon.log()
        assert healthy(daemon)
        idle = [connect(port) for port in (daemon.grpc_port, daemon.port) for _ in range(120)]
        most = 0
        for one in idle:
            most = max(most, descriptors_of(daemon))
            one.setblocking(False)
            with contextlib.suppress(OSError):
                one.recv(4096)
        assert most < limit, "they have taken all descriptors"
        assert not healthy(daemon) or daemon.get("/ready")[0] != 200, "the connections had no effect"
        for one in idle:
            one.close()
        daemon.wait_for(lambda: daemon.get("/ready")[0] == 200 and healthy(daemon), what="recovery")
        assert daemon.post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, "model": "row"})[0] == 200
        assert "Too many open files" not in daemon.log()


def test_silent_connections_are_closed(tmp_path):
    with grpc_daemon(tmp_path, header_seconds=0.5, max_connections=20) as daemon:
        silent = [connect(daemon.grpc_port) for _ in range(20)]
        daemon.wait_for(lambda: healthy(daemon), seconds=30, what="room for another")
        for one in silent:
            one.settimeout(30 * SLOW)
            with contextlib.suppress(ConnectionError):
                while one.recv(4096):
                    pass
            one.close()


def test_idle_connections_are_closed(tmp_path):
    with grpc_daemon(tmp_path, idle_seconds=0.5) as daemon:
        client = Client(daemon.grpc_port)
        client.read_until(lambda: client.closed, "the idle connection to be closed")


class Client:
    """HTTP/2 by hand: calls whose messages do not end."""

    def __init__(self, port):
        self.socket = connect(port)
        self.socket.settimeout(60 * SLOW)
        self.http2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.http2.initiate_connection()
        self.closed, self.ended = False, set()
        self.flush()

    def flush(self):
        try:
            self.socket.sendall(self.http2.data_to_send())
        except OSError:
            self.closed = True

    def read(self, seconds=None):
        self.socket.settimeout(seconds or 60 * SLOW)
        try:
            data = self.socket.recv(1 << 16)
        except TimeoutError:
            return
        except OSError:
            data = b""
        self.closed = self.closed or not data
        try:
            events = self.http2.receive_data(data)
        except h2.exceptions.ProtocolError:  # more comes after the server's goodbye
            self.closed = True
            return
        for event in events:
            if isinstance(event, (h2.events.StreamEnded, h2.events.StreamReset)):
                self.ended.add(event.stream_id)
            if isinstance(event, h2.events.ConnectionTerminated):
                self.closed = True
        self.flush()

    def read_until(self, condition, what):
        for _ in range(1000):
            if condition():
                return
            self.read()
        raise AssertionError(what)

    def settings(self):
        self.read_until(lambda: self.http2.remote_settings.max_concurrent_streams < 2**31, "the server's settings")
        return self.http2.remote_settings

    def begin(self, method="/deltad.v1.Inference/Generate", size=8 << 20):
        stream = self.http2.get_next_available_stream_id()
        self.http2.send_headers(stream, [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "x"),
                                         ("te", "trailers"), ("content-type", "application/grpc")])
        self.http2.send_data(stream, b"\0" + size.to_bytes(4, "big"))
        self.flush()
        return stream

    def send(self, stream, size):
        """What the windows let of so many bytes; how many it was."""
        sent = 0
        with contextlib.suppress(h2.exceptions.ProtocolError):
            while sent < size:
                part = min(self.http2.local_flow_control_window(stream), self.http2.max_outbound_frame_size, size - sent)
                if part <= 0:
                    break
                self.http2.send_data(stream, bytes(part))
                sent += part
        self.flush()
        return sent


def test_the_streams_of_a_connection_are_bounded(tmp_path):
    with grpc_daemon(tmp_path, grpc_keys={"max_streams": 7}) as daemon:
        assert Client(daemon.grpc_port).settings().max_concurrent_streams == 7


def test_unfinished_messages_cost_no_more_than_their_bound(tmp_path):
    bound, each = 48 << 20, (8 << 20) - 64
    with grpc_daemon(tmp_path, grpc_keys={"memory": "48MiB"}, api_keys=["secret"]) as daemon:
        before, most, sent = resident(daemon), 0, 0
        clients = []
        for _ in range(4):  # an idle connection may be closed for those that are not
            client = Client(daemon.grpc_port)
            clients.append(client)
            client.settings()
            left = {client.begin(): each for _ in range(40)}
            quiet = 0
            while left and not client.closed and quiet < 10:
                moved = 0
                for stream in list(left):
                    moved += (one := client.send(stream, left[stream]))
                    left[stream] -= one
                    if left[stream] == 0 or stream in client.ended:
                        del left[stream]
                sent += moved
                client.read(0.2)
                quiet = quiet + 1 if moved == 0 else 0
                most = max(most, resident(daemon) - before)
        print(f"{sent >> 20} MiB sent of unfinished messages: {most >> 20} MiB more in memory")
        assert sent > 8 * bound, "the bound was not reached"
        if SLOW == 1:  # gRPC counts its buffers, and lets go of them a moment late, the later the busier the machine is
            assert most < sent / 2, "without the bound all that was sent would be in memory"
        for client in clients:
            client.socket.close()
        daemon.wait_for(lambda: healthy(daemon), what="recovery")


def test_reflection_does_not_end_for_those_who_ask(tmp_path):
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    with grpc_daemon(tmp_path) as daemon, contextlib.ExitStack() as stack:
        held = threading.Event()

        def silent():
            held.wait()
            yield from ()

        for _ in range(12):
            channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{daemon.grpc_port}",
                                                                options=[("grpc.use_local_subchannel_pool", 1)]))
            reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(silent())
        other = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{daemon.grpc_port}"))

        def answered():
            with contextlib.suppress(grpc.RpcError):
                return list(reflection_pb2_grpc.ServerReflectionStub(other).ServerReflectionInfo(iter([ask])))

        daemon.wait_for(answered, seconds=60, what="a thread for reflection")
        held.set()
