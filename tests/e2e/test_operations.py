"""What an operator does with a running server: drain it under load, give it another config, run it under systemd, ask it how it is."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import BUILD, GOLDEN, ROOT, SLOW, TINY, Server, ctl, free_port, running, tiny_arguments

FILES = GOLDEN / "variants" / "llama"
ROW, TWO = FILES / "llama-row-1.delta.safetensors", FILES / "llama-matrix-2.delta.safetensors"
LONG = {"model": "llama", "prompt": [5, 6, 7], "max_tokens": 400, "temperature": 0, "ignore_eos": True}
SHORT = {**LONG, "max_tokens": 2}


def test_drain_under_load(tmp_path):
    """Of 500 running streams all end normally; new requests get a 503; readiness turns at once, liveness does not; exit code 0."""
    streams, tokens = (500, 120) if SLOW == 1 else (100, 60)
    config = tmp_path / "deltad.yaml"
    config.write_text("server: {drain_seconds: 300}\nengine: {max_running: 512, kv_cache: 256MiB}\n")
    with running(tiny_arguments("--config", config), tmp_path) as server:
        body = json.dumps({**LONG, "max_tokens": tokens, "stream": True}).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        open_ones = []
        for _ in range(streams):
            s = socket.create_connection(("127.0.0.1", server.port), timeout=300 * SLOW)
            s.sendall(head + body)
            open_ones.append(s)
        server.wait_for(lambda: server.metric("deltad_model_running", model="llama") + server.metric("deltad_request_seconds_count") >= streams,
                        120, "all streams to run")
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: server.get("/ready")[0] == 503, 5, "readiness to turn")
        assert server.get("/health")[0] == 200
        status, error = server.post("/v1/completions", SHORT)
        assert status == 503 and "shutting down" in error["error"]["message"]
        assert server.metric("deltad_draining") == 1 and server.metric("deltad_sequences_running") > 0
        for s in open_ones:
            got = b""
            while piece := s.recv(65536):
                got += piece
                if b"data: [DONE]" in got:
                    break
            assert got.startswith(b"HTTP/1.1 200") and b'"finish_reason":"length"' in got and b"data: [DONE]" in got, got[-300:]
            s.close()
        assert server.process.wait(60 * SLOW) == 0


class Reloaded:
    """A server with a config file that can be written anew."""

    def __init__(self, folder):
        self.admin_port, self.file, self.folder = free_port(), folder / "deltad.yaml", folder

    def write(self, variants=f"a: {ROW}", more="", server=""):
        self.file.write_text(f"base: {TINY}\nvariants: {{{variants}}}\nserver: {{admin: {{listen: {self.admin_port}}}{server}}}\n{more}\n")

    def run(self):
        return running(["--config", self.file], self.folder)

    def reload(self, server, applied: bool) -> str:
        """What the server says about it."""
        result = "applied" if applied else "refused"
        before, at = server.metric("deltad_config_reloads_total", result=result), len(server.log())
        server.process.send_signal(signal.SIGHUP)
        server.wait_for(lambda: server.metric("deltad_config_reloads_total", result=result) > before, what=f"a reload that is {result}")
        assert server.metric("deltad_config_last_reload_successful") == (1 if applied else 0)
        server.wait_for(lambda: "config" in server.log()[at:])
        return server.log()[at:]

    def state(self, server) -> dict:
        return json.loads(server.request("GET", "/debug/state", url=f"http://127.0.0.1:{self.admin_port}")[2])


def test_reload_changes_what_can_change(tmp_path):
    one = Reloaded(tmp_path)
    one.write()
    with one.run() as server:
        ask = lambda model, **headers: server.post("/v1/completions", {**SHORT, "model": model}, headers=headers)[0]
        assert (ask("a"), ask("b")) == (200, 404)
        before = one.state(server)["config_digest"]
        one.write(f"b: {{path: {TWO}, rate_limit: {{requests_per_second: 0.001}}}}", "variant_cache: {memory: 4MiB}\nlog: debug",
                  ", api_keys: [key]")
        said = one.reload(server, True)
        assert "variants.a" in said and "server.api_keys" in said and "key]" not in said
        key = {"Authorization": "Bearer key"}
        assert (ask("b"), ask("b", **key), ask("b", **key), ask("a", **key)) == (401, 200, 429, 404)
        state = one.state(server)
        assert state["cache"]["device"]["budget_bytes"] == 4 << 20 and state["config_digest"] != before
        assert "debug request" in server.log()  # probes are lines of the level debug

        one.write(f"b: {ROW}", "log: debug")  # another file under the name, and no key any more; auto again is refused
        assert "variant_cache.memory" in one.reload(server, False)
        assert (ask("b"), ask("b", **key)) == (401, 429)
        one.write(f"b: {ROW}", "variant_cache: {memory: 4MiB}\nlog: debug")
        one.reload(server, True)
        assert ask("b") == 200
        variant, = one.state(server)["variants"]
        assert variant["path"] == str(ROW) and variant["rate_limit"] is None


@pytest.mark.parametrize("variants, more, server_keys, said", [
    (f"a: {ROW}, c: {TWO}", "engine: {max_running: 3}", "", "key 'engine.max_running' cannot change while the server runs"),
    (f"a: {ROW}, c: {TWO}", "", ", io_threads: 3", "key 'server.io_threads'"),
    (f"a: {ROW}, c: {TWO}", "engine: {max_runing: 3}", "", "max_runing"),
    (f"a: {ROW}, c: {TWO}, d: /nowhere", "", "", "/nowhere"),
    (f"a: {ROW}, c: {TWO}, broken: {GOLDEN}/variants/awkward/awkward-row-1.delta.safetensors", "", "", "'broken'"),
    (f"a: {ROW}, c: {TWO}, taken: {TWO}", "", "", "'taken' is there already"),
])
def test_a_refused_reload_changes_nothing(tmp_path, variants, more, server_keys, said):
    one = Reloaded(tmp_path)
    one.write()
    with one.run() as server:
        status, _, text = server.request("POST", "/admin/v1/variants", {"name": "taken", "path": str(ROW)}, url=f"http://127.0.0.1:{one.admin_port}")
        assert status in (200, 201), text
        before = one.state(server)
        one.write(variants, more, server_keys)
        assert said in one.reload(server, False)
        after = one.state(server)
        assert [v["name"] for v in after["variants"]] == ["a", "taken"] and after["config_digest"] == before["config_digest"]
        assert server.post("/v1/completions", {**SHORT, "model": "a"})[0] == 200


def test_ready_is_who_has_the_pinned_variants(tmp_path):
    one = Reloaded(tmp_path)
    one.write(f"a: {{path: {ROW}, pin: true}}, late: {{path: {tmp_path}/late, pin: true}}", "variant_loading: {retry_seconds: 0.1}")
    with running(["--config", one.file], tmp_path, ready=False) as server:
        server.wait_for(lambda: server.get("/ready")[2].count("Pinned variants are being loaded: late."), what="a to be resident")
        assert server.get("/ready")[0] == 503 and server.get("/health")[0] == 200 and server.metric("deltad_ready") == 0
        assert server.post("/v1/completions", {**SHORT, "model": "a"})[0] == 503
        assert ctl("health", "--server", server.url, check=False).returncode == 1
        assert "still being loaded" in one.reload(server, False)
        admin = f"http://127.0.0.1:{one.admin_port}"
        assert server.request("PUT", "/admin/v1/variants/late", {"path": str(TWO)}, url=admin)[0] == 200
        server.wait_ready()
        variants = {v["name"]: v for v in one.state(server)["variants"]}
        assert all(v["pinned"] and v["state"] == "resident" for v in variants.values()) and len(variants) == 2


def test_health_by_deltactl(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        assert ctl("health", "--server", server.url).stdout == "ready\n"
        assert ctl("health", "--server", server.url).stdout == "ready\n"
        assert ctl("health", "--server", server.url, "--live").stdout == "alive\n"
    gone = ctl("health", "--server", server.url, check=False)
    assert gone.returncode == 1 and str(server.port) in gone.stderr
    assert ctl("health", "--server", "no url", check=False).returncode == 2


class Systemd:
    """The service manager's end of NOTIFY_SOCKET."""

    def __init__(self, folder):
        self.path = str(folder / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)

    def next(self, but=(), seconds=30):
        """The next message's variables; of those that begin with one of `but` none."""
        end = time.monotonic() + seconds * SLOW
        while True:
            self.socket.settimeout(max(end - time.monotonic(), 0.01))
            message = dict(line.split("=", 1) for line in self.socket.recv(4096).decode().split("\n"))
            if not any(key in but for key in message):
                return message


def test_systemd_hears_of_each_step(tmp_path):
    systemd, config = Systemd(tmp_path), tmp_path / "deltad.yaml"
    config.write_text(f"base: {TINY}\nlog: info\n")
    env = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": ""}
    with running(["--config", config], tmp_path, env=env) as server:
        assert systemd.next(but=("WATCHDOG",))["READY"] == "1"
        fed = time.monotonic()
        assert systemd.next() == {"WATCHDOG": "1"} and systemd.next() == {"WATCHDOG": "1"} and time.monotonic() - fed < 5 * SLOW
        config.write_text(f"base: {TINY}\nlog: debug\n")
        server.process.send_signal(signal.SIGHUP)
        reloading = systemd.next(but=("WATCHDOG",))
        assert reloading["RELOADING"] == "1" and int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
        assert systemd.next(but=("WATCHDOG",))["READY"] == "1"
        server.process.send_signal(signal.SIGTERM)
        assert systemd.next(but=("WATCHDOG",))["STOPPING"] == "1"
        assert server.process.wait(30 * SLOW) == 0


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_the_unit_is_one(tmp_path):
    unit = tmp_path / "deltad.service"
    unit.write_text((ROOT / "config" / "deltad.service").read_text().replace("/usr/bin/deltad", str(BUILD / "deltad")))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "deltad.service" not in result.stderr, result


def test_log_lines_in_json(tmp_path):
    config = tmp_path / "deltad.yaml"
    config.write_text("log: {level: info, format: json}\n")
    secret = "a-secret-word"
    with running(tiny_arguments("--config", config), tmp_path) as server:
        body = {"model": "row", "messages": [{"role": "user", "content": secret}], "max_tokens": 3, "temperature": 0}
        server.post("/v1/chat/completions", body, headers={"X-Request-Id": "first"})
        server.post("/v1/completions", {**SHORT, "prompt": secret, "model": secret}, headers={"X-Request-Id": "second"})
        server.post("/v1/completions", {**SHORT, secret: 1}, headers={"X-Request-Id": "third"})
        server.wait_for(lambda: '"third"' in server.log())
        log = server.log()
    lines = [json.loads(line) for line in log.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) and line["level"] and line["message"] for line in lines)
    requests = {line["id"]: line for line in lines if line["message"] == "request"}
    assert set(requests) == {"first", "second", "third"}
    first = requests["first"]
    assert first["endpoint"] == "/v1/chat/completions" and first["variant"] == "row" and first["status"] == "200"
    assert first["output_tokens"] >= 1 and 0 <= first["queue_ms"] <= first["ttft_ms"] <= first["total_ms"]
    assert requests["second"]["status"] == "404" and requests["second"]["error"] == "model_not_found"
    assert secret not in log  # what was asked stays with who asked
