"""scripts/gpu_check on an emulated GPU, so that it works the first time it meets a card: the programs packed into a folder of their own,
every part run with tiny sizes; and with parts that fail, hang or have no time."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT

SCRIPT = ROOT / "scripts" / "gpu_check"
PARTS = ["device", "kernels", "models", "daemon", "bench_kernels", "bench_serving", "bench_loads", "memcheck", "racecheck", "synccheck",
         "e2e"]


def write(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path):
    """Stand-ins of what a machine with a card has."""
    folder = tmp_path / "tools"
    folder.mkdir()
    write(folder / "nvidia-smi", 'echo "A card, 580.1, 1000 MiB"\n')
    write(folder / "compute-sanitizer", '[ "$1 $3 $4 $5 $6" = "--tool --target-processes all --error-exitcode 9" ] || exit 2\n'
                                        'echo "$2"; shift 6; exec "$@"\n')
    return folder


def check(folder, out, tools, *more, by=("./gpu_check",)):
    """The exit code, what was printed, and the table: what → (result, seconds, command)."""
    done = subprocess.run([*by, "--quick", "--out", out, *more], text=True, stdout=subprocess.PIPE, timeout=280, cwd=folder,
                          env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": sys.executable,
                               "SECONDS": "5000",  # bash's own count, as after a long build
                               "DELTAD_EMULATED_GPU": "order=random,seed=5"})
    assert done.stdout == (out / "report.md").read_text()
    rows = [re.split(r" *\| *", line)[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
    assert rows[0] == ["what", "result", "s", "command"] and {len(row) for row in rows} == {4}
    return done.returncode, done.stdout, {row[0]: row[1:] for row in rows[2:]}


def test_every_part_on_an_emulated_gpu(tmp_path, tools):
    folder = tmp_path / "folder"
    subprocess.run([SCRIPT, "--pack", BUILD, folder, "--emulated"], check=True)
    reports = tmp_path / "reports"  # of the emulated GPU, a process each
    reports.mkdir()
    for program in ("deltad", "bench_cuda", "bench_cuda_serving"):
        wrapper = folder / "bin" / program
        write(wrapper, wrapper.read_text().replace("#!/bin/sh\n", f"export DELTAD_EMULATED_GPU_REPORT={reports}/{program}.$1\n"))
    code, text, table = check(folder, tmp_path / "out", tools)
    assert code == 0, text
    assert re.match(r"20\d\d-\d\d-\d\d .* UTC; A card, 580.1, 1000 MiB; deltad .*CUDA 13", text)
    assert "\nNothing failed (" in text
    for part in PARTS:
        assert table[part][0].startswith("ok"), text
    assert re.match(r"ok; [1-9]\d* passed, 0 failed, 0 for", table["kernels"][0])
    assert re.match(r"ok; 1 passed, 0 failed, 0 for", table["models"][0])
    assert "output tokens/s" in table["daemon"][0]
    found = {report.name: [line for line in report.read_text().splitlines() if line.startswith(("found", "leak"))]
             for report in reports.iterdir()}
    assert {"deltad.--device", "bench_cuda.--quick", "bench_cuda_serving.serve", "bench_cuda_serving.loads"} <= found.keys()
    assert not any(found.values()), found
    assert not any("synthetic" in path.name for path in (tmp_path / "out").iterdir())
    # A line a figure, each with its command.
    figures = {what: row for what, row in table.items() if ":" in what}
    for what, said in [("bench_kernels: copy within memory, read and written", "GB/s "), ("bench_kernels: matrix tiny 64×512", "/ cuBLASLt's base "),
                       ("bench_kernels: attention, rows 2", "of a copy's rate "), ("bench_serving: serving base", "rows 1, "),
                       ("bench_serving: serving all variants", "rows 3, "), ("bench_loads: load of a variant from the page cache, 1", "GB/s ")]:
        assert said in figures[what][0] and figures[what][2].startswith("`bench_cuda"), (what, text)
    cold = [what for what in figures if what.startswith("bench_loads: load of a variant from ") and "page cache" not in what]
    assert len(cold) == 1 and re.search("from (disk|memory .tmpfs)", cold[0]), text


def test_a_part_that_fails_or_hangs_costs_its_own_lines(tmp_path, tools):
    folder = tmp_path / "folder"
    for name in ("bin", "programs", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "gpu_check").symlink_to(SCRIPT)
    tests = '[ "$1" = --gtest_list_tests ] && printf "Suite.\\n  Good\\n  Bad/0  # GetParam() = 7\\n  Other\\n" && exit\n'
    write(folder / "bin/deltad", 'if [ "$1" = --version ]; then echo "deltad 1"; echo "CUDA 13.0 (A card)"; else echo "no | GPU"; exit 1; fi\n')
    write(folder / "bin/test_cuda_card", tests + 'case $1 in\n*Good) echo "[  PASSED  ] 1 test.";;\n*Other) echo "[  SKIPPED ] 1 test";;\n'
          '*) echo "a.cc:7: Failure"; echo "7 instead of 6"; exit 1;;\nesac\n')
    write(folder / "bin/test_cuda_backend_card", "echo nothing\n")
    write(folder / "bin/bench_cuda", 'printf "| a | b |\\n|---|---|\\n| 1 | 2 |\\n"; trap "" TERM; while :; do sleep 1; done\n')
    write(folder / "bin/bench_cuda_serving", '[ "$1" = serve ] && exit 3\n: > "$4/synthetic.delta.safetensors"\nprintf "| load | s |\\n|---|---|\\n| cold | 2 |\\n"\n')
    write(tools / "compute-sanitizer", 'echo "ERROR SUMMARY: 1 error"; exit 9\n')
    code, text, table = check(folder, tmp_path / "out", tools, "--limit", "5", "--budget", "100")
    assert code == 1
    assert table["device"][0] == "ok"
    assert "exit code 1): tests failed; 1 passed, 1 failed, 1 for other cards" in table["kernels"][0]
    assert "7 instead of 6" in table["kernels: test Suite.Bad/0"][0]
    assert "no test was run" in table["models"][0]
    assert "exit code 1" in table["daemon"][0] and "no / GPU" in table["daemon"][0]
    assert "ran longer than 5 s" in table["bench_kernels"][0] and table["bench_kernels: a 1"][0] == "b 2"
    assert "exit code 3" in table["bench_serving"][0]
    assert table["bench_loads"][0] == "ok" and table["bench_loads: load cold"][0] == "s 2"
    assert not list((tmp_path / "out").glob("*.safetensors"))
    assert "exit code 9): ERROR SUMMARY: 1 error" in table["memcheck"][0]
    assert "\nFailed: kernels models daemon bench_kernels bench_serving memcheck racecheck synccheck e2e (" in text
    # Without time.
    code, text, table = check(folder, tmp_path / "out", tools, "--budget", "4")
    assert code == 1 and all(table[part][0] == "not run: no time is left of 4 s" for part in PARTS)


def test_what_hangs_is_ended_and_the_others_are_told(tmp_path, tools, monkeypatch):
    folder = tmp_path / "folder"
    for name in ("bin", "programs", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "gpu_check").write_text(SCRIPT.read_text())  # not even executable
    write(folder / "bin/deltad", 'echo "CUDA 13.0 (no GPU: there is no driver)"\n')
    write(folder / "bin/test_cuda_card", '[ "$1" = --gtest_list_tests ] && printf "Suite.\\n  Good\\n  Hangs\\n  Later\\n" && exit\n'
          f'case $1 in *Hangs) echo $$ > {tmp_path}/pid; exec sleep 30;; esac\necho "[  PASSED  ] 1 test."\n')
    for program in ("test_cuda_backend_card", "bench_cuda", "bench_cuda_serving"):
        write(folder / "bin" / program, "exit 3\n")
    write(tools / "nvidia-smi", "echo Exclusive_Process\n")  # one test at a time,
    monkeypatch.setenv("OMP_NUM_THREADS", "16")  # whatever nproc says
    out = tmp_path / "out"
    out.mkdir()
    (out / "models.summary").write_text("70 passed, 0 failed")  # an earlier run's
    (out / "models.tests").mkdir()
    code, text, table = check(folder, out, tools, "--limit", "2", "--budget", "8", by=("bash", "gpu_check"))
    assert code == 1
    assert table["kernels"][0] == "**failed**: it ran longer than 2 s; 1 passed, 1 failed, 0 for other cards, 1 not begun"
    assert "not ended" in table["kernels: test Suite.Hangs"][0]
    state = pathlib.Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    assert not state.exists() or ") Z " in state.read_text()
    assert "exit code 1" in table["models"][0] and "passed" not in table["models"][0] and not (out / "models.summary").exists()
    assert "no GPU: there is no driver" in table["device"][0]


def test_programs_that_the_toolkit_is_not_enough_for_are_named(tmp_path, tools):
    tree = tmp_path / "tree"
    (tree / "scripts").mkdir(parents=True)
    (tree / "build/release").mkdir(parents=True)
    (tree / "build/release/build.ninja").write_text("build deltad: LINK\nbuild deltactl: LINK\nbuild test_cuda_card: LINK\n"
                                                    "build test_cuda_backend_card: LINK\n")
    (tree / "scripts/gpu_check").symlink_to(SCRIPT)
    write(tree / "scripts/build", '[ "$*" = "release help" ]\n')
    for tool in ("cmake", "nvcc"):
        write(tools / tool, "exit 1\n")
    done = subprocess.run([tree / "scripts/gpu_check", "--build", tmp_path / "folder", "--without-cublas"], text=True, stderr=subprocess.PIPE,
                          env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})
    assert done.returncode == 1 and "no bench_cuda: it needs cublasLt.h" in done.stderr
