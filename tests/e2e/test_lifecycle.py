"""The daemon's life: loading, draining, clients that leave, broken variants, wrong configs; on a tiny model."""
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

from conftest import BUILD, GOLDEN, SLOW, TINY, Server, running, tiny_arguments

LONG = {"model": "llama", "prompt": [5, 6, 7], "max_tokens": 400, "temperature": 0, "ignore_eos": True}


def test_drain_finishes_running_requests(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        connection, answer = server.begin_stream(LONG)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda: server.get("/ready")[0] in (503, 0), what="not ready any more")
        rest = answer.read().decode()
        assert rest.rstrip().endswith("data: [DONE]") and '"finish_reason":"length"' in rest.replace(" ", "")
        connection.close()
        assert server.process.wait(30 * SLOW) == 0


def test_second_signal_stops_at_once(tmp_path):
    server = Server(tiny_arguments(), tmp_path / "log")
    server.wait_ready()
    connection, _ = server.begin_stream({**LONG, "max_tokens": 450, "n": 32})
    # Both are there when it goes on: it cannot be done before it hears of the second.
    for each in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
        server.process.send_signal(each)
    assert server.process.wait(10 * SLOW) == 1
    assert "second signal" in server.log()
    connection.close()


def test_a_client_that_leaves_frees_its_memory(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        body = {**LONG, "max_tokens": 480}
        for streamed in (True, False):
            open_ones = []
            for _ in range(8):
                if streamed:
                    open_ones.append(server.begin_stream(body)[0])
                else:
                    s = socket.create_connection(("127.0.0.1", server.port))
                    data = json.dumps(body).encode()
                    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
                              + str(len(data)).encode() + b"\r\n\r\n" + data)
                    open_ones.append(s)
            for one in open_ones:
                one.close()
            server.wait_for(lambda: server.metric("vllm:num_requests_running") == 0
                            and server.metric("vllm:num_requests_waiting") == 0, 5, "all requests gone")
        assert server.get("/health")[0] == 200


def test_one_broken_variant_fails_only_its_own_requests(tmp_path):
    good = GOLDEN / "variants" / "llama" / "llama-row-1.delta.safetensors"
    broken = tmp_path / "broken.delta.safetensors"
    data = bytearray(good.read_bytes())
    data[-100] ^= 0x10
    broken.write_bytes(data)
    other = GOLDEN / "variants" / "awkward" / "awkward-row-1.delta.safetensors"
    arguments = tiny_arguments("--variant", f"broken={broken}", "--variant", f"foreign={other}")
    with running(arguments, tmp_path) as server:
        connection, answer = server.begin_stream(LONG)
        for name, reason in (("broken", "digest"), ("foreign", "base")):
            status, error = server.post("/v1/completions", {**LONG, "model": name, "max_tokens": 2})
            assert status == 503 and reason in error["error"]["message"], error
        status, _ = server.post("/v1/completions", {**LONG, "model": "row", "max_tokens": 2})
        assert status == 200
        assert answer.read().decode().rstrip().endswith("data: [DONE]")
        connection.close()
        # The next request after the back-off tries again.
        shutil.copy(good, broken.with_suffix(".new"))
        os.replace(broken.with_suffix(".new"), broken)
        server.wait_for(lambda: server.post("/v1/completions", {**LONG, "model": "broken", "max_tokens": 2})[0] == 200, 10)


def test_many_requests_cause_one_load(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        answers = []
        ask = lambda: answers.append(server.post("/v1/completions", {**LONG, "model": "two", "max_tokens": 2})[0])
        threads = [threading.Thread(target=ask) for _ in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert answers == [200] * 16
        assert server.log().count("variant two loaded") == 1


def run(*arguments):
    return subprocess.run([str(BUILD / "deltad"), *map(str, arguments)], capture_output=True, text=True, timeout=60 * SLOW)


def make_for_another_base(folder):
    """A good variant that says it was made for other weights."""
    data = (GOLDEN / "variants" / "llama" / "llama-row-1.delta.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    digest = json.loads(data[8:8 + length])["__metadata__"]["base_digest"]
    assert len(digest) == 32
    path = folder / "other.delta.safetensors"
    path.write_bytes(data.replace(digest.encode(), b"0" * 32))
    return path


def test_check_config(tmp_path):
    file = tmp_path / "deltad.yaml"
    file.write_text(f"base: {TINY}\nvariants:\n  row: {GOLDEN}/variants/llama/llama-row-1.delta.safetensors\n")
    good = run("--config", file, "--check-config")
    assert good.returncode == 0 and "row" in good.stdout, good
    file.write_text(f"base: {TINY}\nengine:\n  max_runing: 3\n")
    bad = run("--config", file, "--check-config")
    assert bad.returncode == 2 and "line 3" in bad.stderr and "max_runing" in bad.stderr and "max_running" in bad.stderr
    file.write_text(f"base: {TINY}\nvariants:\n  llama: {GOLDEN}/variants/llama/llama-row-1.delta.safetensors\n")
    shadow = run("--config", file, "--check-config")
    assert shadow.returncode == 2 and "base" in shadow.stderr
    other = make_for_another_base(tmp_path)
    for text, said in [(f"variants:\n  other: {other}\n", ["'other'", str(other), "base"]),
                       (f"variant_watch: {{folder: {file}}}\n", [str(file), "is not a folder"]),
                       ("server: {listen: 0.0.0.0:9000, admin: {listen: 9000}}\n", ["server.admin.listen", "127.0.0.1:9000"])]:
        file.write_text(f"base: {TINY}\n{text}")
        wrong = run("--config", file, "--check-config")
        assert wrong.returncode == 2 and all(word in wrong.stderr for word in said), wrong
    file.write_text(f"base: {TINY}\nvariant_watch: {{folder: {tmp_path}/later}}\n")
    assert run("--config", file, "--check-config").returncode == 0
    assert run("--base", tmp_path / "nowhere").returncode != 0
    assert run("--no-such-option").returncode == 2


def test_a_wrong_base_ends_with_the_reason(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["MambaForCausalLM"]
    config["model_type"] = "mamba"
    (folder / "config.json").write_text(json.dumps(config))
    server = Server(["--base", folder], tmp_path / "log")
    assert server.process.wait(30 * SLOW) == 1
    assert "MambaForCausalLM" in server.log()


def test_address_in_use(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        second = run("--base", TINY, "--listen", f"127.0.0.1:{server.port}")
        assert second.returncode == 1 and str(server.port) in second.stderr


def test_idle_uses_no_cpu(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        server.post("/v1/completions", {**LONG, "max_tokens": 8})
        time.sleep(0.5)
        ticks = lambda: sum(map(int, open(f"/proc/{server.process.pid}/stat").read().rsplit(") ", 1)[1].split()[11:13]))
        before = ticks()
        time.sleep(2)
        assert ticks() - before <= 4 * SLOW  # hundredths of a second
