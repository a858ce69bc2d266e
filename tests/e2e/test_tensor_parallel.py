"""The daemon with tensor parallelism: two ranks, threads of one process, on a tiny model. A rank is stalled from outside, with ptrace."""
import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import threading
import time

import pytest
import yaml

from conftest import BUILD, GOLDEN, ROOT, SLOW, TINY, running, tiny_arguments

PROMPTS = [[89, 88, 469, 278], [417, 69, 268, 401, 290, 108, 221, 489, 31, 249], [151, 38, 88, 84, 133, 273, 490]]
NAMES = ["llama", "row", "two", "wide", "adapter"]
STALL = 2 * SLOW


def config(folder: pathlib.Path, **more) -> pathlib.Path:
    """fp32 arithmetic: what the ranks add in another order then decides no token."""
    path = folder / "deltad.yaml"
    path.write_text(yaml.safe_dump({"cpu": {"isa": "scalar", "threads": 2}, "engine": {"stall_seconds": STALL, "kv_cache": "4MiB"}, **more}))
    return path


def arguments(*more):
    return tiny_arguments("--variant", f"adapter={GOLDEN}/lora/plain", *more)


def body(name: str, prompt: int, tokens: int = 12) -> dict:
    return {"model": name, "prompt": PROMPTS[prompt], "temperature": 0, "max_tokens": tokens, "ignore_eos": True, "return_token_ids": True}


def answers(server) -> dict:
    """Of every variant to every prompt, asked all at once: mixed batches."""
    found = {}

    def ask(name, prompt):
        status, answer = server.post("/v1/completions", body(name, prompt))
        found[name, prompt] = (status, answer["choices"][0]["token_ids"] if status == 200 else answer)

    threads = [threading.Thread(target=ask, args=(name, prompt)) for name in NAMES for prompt in range(len(PROMPTS))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert all(status == 200 for status, _ in found.values()), found
    return {key: tokens for key, (_, tokens) in found.items()}


def test_two_ranks_answer_as_one(tmp_path):
    (tmp_path / "one").mkdir()
    with running(arguments("--config", config(tmp_path)), tmp_path / "one") as server:
        expected = answers(server)
        base, variants = server.metric("deltad_base_bytes"), server.metric("deltad_variant_resident_bytes")
    (tmp_path / "two").mkdir()
    with running(arguments("--config", config(tmp_path), "--tensor-parallel-size", 2), tmp_path / "two") as server:
        assert "2 ranks: CPU, scalar, 1 thread" in server.log()
        assert answers(server) == expected
        assert answers(server) == expected  # from the prefix cache now
        # Sums over the ranks, which both have the norms and the scales of what is divided by input.
        assert base <= server.metric("deltad_base_bytes") < 1.1 * base
        assert variants <= server.metric("deltad_variant_resident_bytes") < 1.2 * variants
        connection, answer = server.begin_stream({**body("row", 0, 40), "stream": True})
        text = answer.read().decode()
        assert text.rstrip().endswith("data: [DONE]")
        connection.close()


def test_variants_come_and_go(tmp_path):
    """With room for one variant each load evicts another, on both ranks."""
    ranks = ("--tensor-parallel-size", 2)
    with running(arguments("--config", config(tmp_path), *ranks), tmp_path) as server:
        expected = answers(server)
        largest = max(server.metric("deltad_variant_resident_bytes", variant=name) for name in NAMES)
    with running(arguments("--config", config(tmp_path, variant_cache={"memory": int(largest)}), *ranks), tmp_path) as server:
        for _ in range(2):
            for (name, prompt), tokens in expected.items():
                status, answer = server.post("/v1/completions", body(name, prompt))
                assert status == 200 and answer["choices"][0]["token_ids"] == tokens
        assert server.metric("deltad_variant_evictions_total") >= 4


class Ptrace:
    """Stops one thread of another process, and lets it go on."""
    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
    WALL = 0x40000000

    def __init__(self):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.libc.ptrace.restype = ctypes.c_long

    @contextlib.contextmanager
    def stopped(self, thread: int):
        if self.libc.ptrace(self.SEIZE, thread, None, None) != 0:
            pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
        assert self.libc.ptrace(self.INTERRUPT, thread, None, None) == 0
        os.waitpid(thread, self.WALL)
        try:
            yield
        finally:
            self.libc.ptrace(self.DETACH, thread, None, None)  # fails if the process has ended


def thread_named(process: int, name: str) -> int:
    [found] = [int(task.name) for task in pathlib.Path(f"/proc/{process}/task").iterdir() if (task / "comm").read_text().strip() == name]
    return found


def test_a_stalled_rank_is_named(tmp_path):
    with running(arguments("--config", config(tmp_path), "--tensor-parallel-size", 2), tmp_path, ends=1) as server:
        assert server.post("/v1/completions", body("row", 0))[0] == 200
        with Ptrace().stopped(thread_named(server.process.pid, "rank 1")):
            begin = time.monotonic()
            status, answer = server.post("/v1/completions", body("row", 1))
            assert status in (500, 503) and "rank 1 of 2" in answer["error"]["message"], answer
            assert time.monotonic() - begin < 5 * STALL
            for path in ("/health", "/ready"):
                status, _, text = server.get(path)
                assert status == 503 and "rank 1 of 2: the others have waited for it" in json.loads(text)["error"]["message"], text
            # At once, though the rank still hangs.
            begin = time.monotonic()
            assert server.post("/v1/completions", body("llama", 1))[0] == 503
            assert time.monotonic() - begin < STALL
            assert server.metric("deltad_engine_healthy") == 0
        # It goes on, but what it has missed it has missed.
        assert server.get("/health")[0] == 503


def test_a_daemon_whose_rank_hangs_can_be_stopped(tmp_path):
    with running(arguments("--config", config(tmp_path), "--tensor-parallel-size", 2), tmp_path, ends=1) as server:
        thread = thread_named(server.process.pid, "rank 1")
        with Ptrace().stopped(thread):
            assert server.post("/v1/completions", body("row", 1))[0] in (500, 503)
            server.process.send_signal(signal.SIGTERM)
            # Whoever traces a thread is told of its end first.
            server.wait_for(lambda: os.waitpid(thread, Ptrace.WALL | os.WNOHANG)[0] == thread, 30, "the daemon ends")
            assert server.process.wait(30 * SLOW) == 1
        assert "ending without an orderly stop" in server.log() and "rank 1 of 2" in server.log()


def check_config(*more) -> subprocess.CompletedProcess:
    return subprocess.run([str(BUILD / "deltad"), "--base", str(TINY), "--check-config", *map(str, more)], capture_output=True, text=True)


def test_more_ranks_than_the_model_is_enough_for(tmp_path):
    result = check_config("--tensor-parallel-size", 5)
    assert result.returncode == 2 and "the model's 4 heads are enough for 4" in result.stderr
    assert "4 ranks share the base and each variant; on GPUs, communicator auto" in check_config("--tensor-parallel-size", 4).stdout
    result = check_config("--tensor-parallel-size", 65)
    assert result.returncode == 2 and "--tensor-parallel-size" in result.stderr
    file = tmp_path / "deltad.yaml"
    file.write_text("engine: {tensor_parallel: 0}")
    result = check_config("--config", file)
    assert result.returncode == 2 and "engine.tensor_parallel" in result.stderr and "from 1 to 64" in result.stderr
    file.write_text("engine: {tensor_parallel: 2, communicator: nccl}")
    assert "on GPUs, communicator nccl" in check_config("--config", file).stdout
    file.write_text("engine: {communicator: ring}")
    result = check_config("--config", file)
    assert result.returncode == 2 and "key 'engine.communicator': expected auto, peer or nccl" in result.stderr


def test_the_example_for_eight_gpus():
    """Its keys are right; the tiny model is not enough for eight."""
    example = ROOT / "config" / "h100x8.yaml"
    result = check_config("--config", example)
    assert result.returncode == 2 and "tensor parallelism of 8: the model's 4 heads are enough for 4" in result.stderr
    result = check_config("--config", example, "--tensor-parallel-size", 4)
    assert result.returncode == 0 and "4 ranks share the base" in result.stdout, result.stderr
