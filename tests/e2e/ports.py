"""Ports for servers that tests and benchmarks start."""
import pathlib
import random
import socket

_claims = []  # sockets whose names tell other processes which ports this one has taken


def free_port() -> int:
    """A port that nobody listens on, the same one never twice. None of those that the kernel hands out: one it has handed out
    once, it may hand to another before the server that it is for listens on it."""
    handed_out = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.SystemRandom().randrange(10240, handed_out)  # not `random`: a test may have seeded it
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0deltad-port-{port}")
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return port
