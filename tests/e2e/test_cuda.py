"""The daemon on an emulated GPU, beside the one on the CPU; and without a GPU. The emulated GPU reports what it found at the end.

$DELTAD_CUDA_DAEMON names another program, for a card (scripts/gpu_check): what needs the emulator is left out then.
"""
import contextlib
import json
import os
import subprocess
import threading

import pytest

from conftest import BUILD, GOLDEN, TINY, running

EMULATED = "deltad_cuda_emulated_daemon"
PROGRAM = os.environ.get("DELTAD_CUDA_DAEMON", EMULATED)
emulated = pytest.mark.skipif(PROGRAM != EMULATED, reason="a card cannot be told to fail")
VARIANTS = {"row": GOLDEN / "variants/llama/llama-row-1.delta.safetensors", "two": GOLDEN / "variants/llama/llama-matrix-2.delta.safetensors",
            "wide": GOLDEN / "variants/llama_vocab/llama_vocab-row-1.delta.safetensors", "plain": GOLDEN / "lora/plain"}
NAMES = ["llama", *VARIANTS]
PROMPT = [89, 88, 469, 278, 31, 7]
ARGUMENTS = ["--base", TINY, *(a for name, path in VARIANTS.items() for a in ("--variant", f"{name}={path}"))]


@contextlib.contextmanager
def on_gpu(folder, *more, gpu="order=random,seed=3"):
    """A daemon on an emulated GPU, which must have nothing to say of it when it has ended."""
    report = folder / "gpu.txt"
    with running([*ARGUMENTS, "--device", "cuda", *more], folder, program=PROGRAM,
                 env={"DELTAD_EMULATED_GPU": gpu, "DELTAD_EMULATED_GPU_REPORT": str(report)}) as server:
        yield server
    if PROGRAM == EMULATED:
        assert [line for line in report.read_text().splitlines() if line.startswith(("found", "leak"))] == []


def ask(server, model, tokens=4, prompt=PROMPT):
    status, body = server.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 2,
                                                   "ignore_eos": True, "return_token_ids": True})
    assert status == 200, body
    choice = body["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def test_answers_as_the_cpu_does(tmp_path):
    (tmp_path / "cpu").mkdir()
    with running([*ARGUMENTS, "--device", "cpu"], tmp_path / "cpu") as cpu:
        expected = {name: ask(cpu, name) for name in NAMES}
    with on_gpu(tmp_path) as server:
        health = json.loads(server.get("/health")[2])
        assert health["device"].startswith("CUDA, ") and any(b.startswith("CUDA 13") for b in health["backends"])
        alone = {name: ask(server, name) for name in NAMES}
        for name in NAMES:
            # Tokens that are close calls may differ; then what follows differs, too.
            assert abs(alone[name][1][0] - expected[name][1][0]) < 0.25 or alone[name][0] != expected[name][0]
        assert sum(alone[name][0][0] == expected[name][0][0] for name in NAMES) >= len(NAMES) - 1
        together = {}

        def one(name):
            together[name] = ask(server, name)
        threads = [threading.Thread(target=one, args=(name,)) for name in NAMES]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert together == alone  # to the bit
        assert server.metric("deltad_ready") == 1


@pytest.mark.parametrize("host", ["none", "8MiB"])
def test_variants_come_and_go(tmp_path, host):
    config = tmp_path / "config.yaml"
    config.write_text(f"variant_cache: {{memory: 700KiB, host_memory: {host}}}\n")  # not for all of them on the GPU
    with on_gpu(tmp_path, "--config", config) as server:
        first = {name: ask(server, name, 2) for name in NAMES}
        for _ in range(2):
            for name in NAMES:
                assert ask(server, name, 2) == first[name]
        assert server.metric("deltad_variant_evictions_total") > 0
        from_disk, from_host = (server.metric("deltad_load_seconds_count", source=source) for source in ("disk", "host"))
        if host == "none":
            assert from_host == 0
        else:  # each was read once
            assert from_disk == len(NAMES) - 1 and from_host > 0


@emulated
def test_a_gpu_that_fails_makes_the_engine_unhealthy(tmp_path):
    calls = tmp_path / "gpu.txt"
    with on_gpu(tmp_path) as server:
        ask(server, "llama", 1)
    last = sum(line.startswith("call ") and line.split()[1] == "cudaLaunchKernelExC" for line in calls.read_text().splitlines()) - 1
    with running([*ARGUMENTS, "--device", "cuda"], tmp_path, program=EMULATED,
                 env={"DELTAD_EMULATED_GPU": f"late={last}:700:0:cudaLaunchKernelExC"}, ends=1) as server:
        status, body = server.post("/v1/completions", {"model": "llama", "prompt": PROMPT, "max_tokens": 1, "temperature": 0})
        assert status == 500 and "cuda" in body["error"]["message"], body
        assert server.get("/ready")[0] == 503
        status, _, body = server.get("/health")  # a restart may help
        assert status == 503 and "cuda" in body, body
        assert "has failed" in server.log()


RANKS = ["--tensor-parallel-size", "2"]


@emulated
def test_ranks_on_two_gpus_answer_as_the_cpu_does(tmp_path):
    (tmp_path / "cpu").mkdir()
    with running([*ARGUMENTS, "--device", "cpu"], tmp_path / "cpu") as cpu:
        expected = {name: ask(cpu, name, 1) for name in NAMES}
        variants = cpu.metric("deltad_variant_resident_bytes")
    with on_gpu(tmp_path, *RANKS, gpu="devices=2,order=random,seed=3") as server:
        assert "2 ranks: CUDA, emulated GPU" in server.log()
        for name in NAMES:
            tokens, logprobs = ask(server, name, 1)
            # A close call may be another token, with another probability.
            assert abs(logprobs[0] - expected[name][1][0]) < 0.25 or tokens != expected[name][0]
        assert server.metric("deltad_variant_resident_bytes") > variants / 2
        assert server.metric("deltad_ready") == 1


@emulated
def test_ranks_without_peer_memory_answer_the_same_by_nccl(tmp_path):
    (tmp_path / "peer").mkdir()
    with on_gpu(tmp_path / "peer", *RANKS, gpu="devices=2") as server:
        expected = {name: ask(server, name, 3) for name in NAMES}
        assert json.loads(server.get("/health")[2])["device"].endswith("; sums over peer memory")
    with on_gpu(tmp_path, *RANKS, gpu="devices=2,peers=1,order=random,seed=5") as server:
        for name in NAMES:  # logits are the same to the bit, but the host samples them here
            tokens, logprobs = ask(server, name, 3)
            assert tokens == expected[name][0] and logprobs == pytest.approx(expected[name][1], abs=1e-5)
        assert json.loads(server.get("/health")[2])["device"].endswith("; sums by NCCL 2.28.9")
        assert "GPU 0 cannot reach the memory of GPU 1" in server.log() and "NCCL brings the parts of sums together" in server.log()


@emulated
def test_ranks_without_peer_memory_and_without_nccl(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("engine: {communicator: nccl}\n")
    for more, peers, expected in (([], 1, "GPU 0 cannot reach the memory of GPU 1"), (["--config", config], 0, "communicator: nccl: NCCL cannot")):
        done = subprocess.run([BUILD / EMULATED, *ARGUMENTS, *RANKS, *more, "--device", "cuda", "--listen", "127.0.0.1:0"], capture_output=True,
                              env={"DELTAD_EMULATED_GPU": f"devices=2,nccl=0,peers={peers}"}, text=True, timeout=60)
        assert done.returncode == 1 and expected in done.stderr and "The package libnccl2 brings it" in done.stderr


@emulated
@pytest.mark.parametrize("peers", [0, 1])
def test_a_rank_whose_gpu_fails_is_named(tmp_path, peers):
    arguments = [*ARGUMENTS, "--device", "cuda", *RANKS]
    calls = tmp_path / "gpu.txt"
    with running(arguments, tmp_path, program=EMULATED,
                 env={"DELTAD_EMULATED_GPU": f"devices=2,peers={peers}", "DELTAD_EMULATED_GPU_REPORT": str(calls)}) as server:
        ask(server, "llama", 1)
    # Of the second GPU's calls, whose order the first one's do not change.
    names = [line.split()[1] for line in calls.read_text().splitlines() if line.startswith("call ") and line.split()[-1] == "1"]
    last = names.count("cudaLaunchKernelExC") - 1
    with running(arguments, tmp_path, program=EMULATED, env={"DELTAD_EMULATED_GPU": f"devices=2,peers={peers},late={last}:700:1:cudaLaunchKernelExC"}, ends=1) as server:
        status, body = server.post("/v1/completions", {"model": "llama", "prompt": PROMPT, "max_tokens": 1, "temperature": 0})
        assert status in (500, 503) and "rank 1 of 2: " in body["error"]["message"], body
        for path in ("/ready", "/health"):
            status, _, body = server.get(path)
            assert status == 503 and "rank 1 of 2: " in body, body


@emulated
def test_more_ranks_than_gpus(tmp_path):
    two = {"DELTAD_EMULATED_GPU": "devices=2"}
    arguments = [*ARGUMENTS, "--tensor-parallel-size", "4"]
    done = subprocess.run([BUILD / EMULATED, *arguments, "--device", "cuda", "--listen", "127.0.0.1:0"], env=two, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and "device: cuda: rank 2 of 4: there is no CUDA device 2: 2 found" in done.stderr
    with running([*arguments, "--device", "auto"], tmp_path, program=EMULATED, env=two) as server:
        assert "the CPU is used, for no 4 GPUs can be" in server.log() and "4 ranks: CPU" in server.log()


@emulated
def test_without_a_gpu(tmp_path):
    none = {"DELTAD_EMULATED_GPU": "devices=0"}
    done = subprocess.run([BUILD / EMULATED, *ARGUMENTS, "--device", "cuda", "--listen", "127.0.0.1:0"], env=none, capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 1 and "device: cuda: " in done.stderr and "no CUDA-capable device" in done.stderr
    with running([*ARGUMENTS, "--device", "auto"], tmp_path, program=EMULATED, env=none) as server:
        assert ask(server, "row", 1)[0]
        assert json.loads(server.get("/health")[2])["device"].startswith("CPU")
        assert "the CPU is used" in server.log()


def test_version_names_the_backends():
    for program in ("deltad", PROGRAM):
        lines = subprocess.run([BUILD / program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()
        assert lines[0].startswith("deltad ") and lines[1].startswith("CPU, ") and lines[2].startswith("CUDA"), lines
