"""deltactl plan as its users call it: against a running daemon's numbers, and its exit codes."""
import json
import subprocess

import pytest
from conftest import BUILD, TINY


def plan(*arguments):
    return subprocess.run([str(BUILD / "deltactl"), "plan", *map(str, arguments)], capture_output=True, text=True)


def test_the_base_takes_what_the_daemon_says(tiny):
    done = plan("--model", TINY, "--variants", 1, "--gpus", "cpu:1GiB", "--context", 64, "--json")
    assert done.returncode == 0, done.stderr
    planned = json.loads(done.stdout)["bytes_per_device"]["base"]
    assert planned == pytest.approx(tiny.metric("deltad_base_bytes"), rel=0.02)


def test_the_table_names_the_knees():
    done = plan("--model", "70b", "--variants", 20, "--gpus", "8xH100-80GB", "--concurrency", 64, "--context", 4096)
    assert done.returncode == 0, done.stderr
    assert "one more evicts" in done.stdout and "one more waits" in done.stdout


@pytest.mark.parametrize("arguments, code, message", [
    (["--model", "70b", "--variants", 1, "--gpus", "L4-24GB"], 1, ""),
    (["--model", "70b", "--variants", 1, "--gpus", "8xH99"], 2, "expected one of H100-80GB"),
    (["--model", "/nowhere", "--variants", 1, "--gpus", "L4-24GB"], 2, "expected 8b, 70b, or a folder"),
    (["--model", "8b", "--variants", 1, "--gpus", "L4-24GB", "--storage-rate", "3"], 2, "such as 3GB/s"),
])
def test_exit_codes_and_messages(arguments, code, message):
    done = plan(*arguments)
    assert done.returncode == code
    assert message in done.stderr
