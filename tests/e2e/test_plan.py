"""deltactl plan as its users call it: against a running daemon's numbers, and its exit codes."""
import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import BUILD, TINY, running, tiny_arguments


def plan(*arguments):
    return subprocess.run([str(BUILD / "deltactl"), "plan", *map(str, arguments)], capture_output=True, text=True)


def test_the_daemon_takes_what_was_planned(tmp_path):
    """Base, a variant, KV blocks and workspace, as planned and as a running daemon accounts for them."""
    config = tmp_path / "deltad.yaml"
    config.write_text("engine: {kv_cache: 4MiB, max_step_rows: 64}\n")
    at_once = 8
    done = plan("--model", TINY, "--variants", 1, "--gpus", "cpu:1GiB", "--context", 256, "--step-rows", 64, "--concurrency", at_once, "--dense", "all", "--json")
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)
    size = planned["bytes_per_device"]
    with running(["--config", config, *tiny_arguments()], tmp_path) as server:
        body = {"prompt": [5, 6, 7], "max_tokens": 200, "ignore_eos": True}
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(lambda i: server.post("/v1/completions", {**body, "model": ["llama", "row"][i % 2]})[0], range(at_once)))
        assert answers == [200] * at_once
        metric = server.metric
        assert size["base"] == pytest.approx(metric("deltad_base_bytes"), rel=0.02)
        assert size["variant"] == pytest.approx(metric("deltad_variant_resident_bytes", variant="row"), rel=0.02, abs=4096)  # whole pages
        assert size["workspace"] == pytest.approx(metric("deltad_workspace_bytes"), rel=0.02)
        assert metric("deltad_kv_blocks") == (4 << 20) // planned["kv_block_bytes"]


def test_the_table_names_the_knees():
    done = plan("--model", "70b", "--variants", 20, "--gpus", "8xH100-80GB", "--concurrency", 64, "--context", 4096)
    assert done.returncode == 0, done.stderr
    assert "one more evicts" in done.stdout and "one more waits" in done.stdout


@pytest.mark.parametrize("arguments, code, message", [
    (["--model", "70b", "--variants", 1, "--gpus", "L4-24GB"], 1, ""),
    (["--model", "70b", "--variants", 1, "--gpus", "8xH99"], 2, "expected one of H100-80GB"),
    (["--model", "/nowhere", "--variants", 1, "--gpus", "L4-24GB"], 2, "expected 8b, 70b, a folder"),
    (["--model", "8b", "--variants", 1, "--gpus", "L4-24GB", "--storage-rate", "3"], 2, "such as 3GB/s"),
])
def test_exit_codes_and_messages(arguments, code, message):
    done = plan(*arguments)
    assert done.returncode == code
    assert message in done.stderr


def test_signs_and_a_low_rank_part_are_the_sum_of_both():
    def variant(*options):
        done = plan("--model", "8b", "--variants", 1, "--gpus", "H100-80GB", "--json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["bytes_per_device"]["variant"]
    signs, both = variant("--dense", "none"), variant("--dense", "none", "--residual-rank", 16)
    assert both == pytest.approx(signs + variant("--rank", 16), abs=4096) and both > signs
    assert plan("--model", "8b", "--variants", 1, "--gpus", "H100-80GB", "--rank", 4, "--residual-rank", 4).returncode == 2
