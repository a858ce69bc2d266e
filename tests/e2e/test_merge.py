"""deltactl merge end to end on the tiny models: each method and form against numpy, resuming, and bad input."""
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import BUILD, GOLDEN, TINY, ctl

sys.path.insert(0, str(GOLDEN / "make"))
import merge as oracle  # noqa: E402

VARIANTS = GOLDEN / "variants" / "llama"
KEPT_WHOLE = ("norm", "embed_tokens", "lm_head")


def is_matrix(name: str) -> bool:
    return not any(part in name for part in KEPT_WHOLE)


def read_model(folder) -> dict:
    """name → fp64, whatever the type; numpy has no bf16."""
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, t in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        raw = data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[t["dtype"]])
        tensors[name] = values.reshape(t["shape"]).astype(np.float64)
    return tensors


def write_f32(folder, tensors: dict, template=TINY):
    """A model folder with these values."""
    folder.mkdir()
    for file in template.iterdir():
        if file.suffix == ".json":
            shutil.copy(file, folder)
    save_file({name: np.ascontiguousarray(t.astype(np.float32)) for name, t in tensors.items()}, folder / "model.safetensors",
              {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def base():
    return read_model(TINY)


@pytest.fixture(scope="module")
def tunes(base, tmp_path_factory):
    """Three fine-tunes in fp32: (paths, Δ of each). The second changes fewer tensors, one with rank 3."""
    rng = np.random.default_rng(11)
    folder, paths, deltas = tmp_path_factory.mktemp("tunes"), [], []
    for i in range(3):
        tuned = {name: w + 0.02 * rng.standard_normal(w.shape) * np.linalg.norm(w) / np.sqrt(w.size) for name, w in base.items()
                 if "embed" not in name}
        tuned["model.embed_tokens.weight"] = base["model.embed_tokens.weight"]
        if i == 1:
            name = "model.layers.0.mlp.up_proj.weight"
            m, n = base[name].shape
            tuned[name] = base[name] + 0.01 * rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
            for name in base:
                if "layers.1.self_attn" in name:
                    tuned[name] = base[name]
        tuned = {name: w.astype(np.float32).astype(np.float64) for name, w in tuned.items()}
        paths.append(write_f32(folder / f"tune{i}", tuned))
        deltas.append({name: tuned[name] - base[name] for name in base})
    return paths, deltas


def merge(method: str, sources, out, *more) -> dict:
    return json.loads(ctl("merge", method, "--base", TINY, *sources, "-o", out, *more, "--json").stdout)


def expect(out, base, expected: dict, tolerance=1e-4):
    ours = read_model(out)
    assert set(ours) == set(base)
    for name, w in base.items():
        delta, reference = ours[name] - w, expected[name]
        if not is_matrix(name):  # carried in the source's type
            assert np.abs(delta - reference).max() <= 1e-6 + 2 ** -8 * np.abs(w + reference).max(), name
            continue
        assert np.abs(delta - reference).max() <= tolerance * max(np.abs(reference).max(), 1e-9) + 1e-7, name


def each(base, deltas, function) -> dict:
    return {name: function([d[name] for d in deltas], name) for name in base}


def test_elementwise_methods_are_the_reference(tmp_path, base, tunes):
    paths, deltas = tunes
    w = [0.5, 1.0, 0.25]
    weights = ("--weights", "0.5,1,0.25")
    cases = {
        "soup": ((*weights,), lambda d, n: oracle.soup(d, w)),
        "task-arithmetic": ((*weights, "--lambda", "0.4"), lambda d, n: oracle.task_arithmetic(d, w, 0.4)),
        "ties": ((*weights, "--lambda", "0.9", "--density", "0.3"), lambda d, n: oracle.ties(d, w, 0.9, 0.3)),
        "dare": ((*weights, "--lambda", "0.4", "--drop", "0.6", "--seed", "5"),
                 lambda d, n: oracle.dare(d, w, 0.4, 0.6, 5, n)),
    }
    for method, (options, reference) in cases.items():
        for jobs in (1, 3):
            out = tmp_path / f"{method}-{jobs}"
            merge(method, paths, out, *options, "--dtype", "f32", "--jobs", jobs)
            expect(out, base, each(base, deltas, reference))
    plain = tmp_path / "plain"
    merge("soup", paths, plain, "--dtype", "f32")
    expect(plain, base, each(base, deltas, lambda d, n: sum(d) / 3))


def test_monosoup_is_the_reference(tmp_path, base, tunes):
    paths, deltas = tunes
    for rule, options in ((0.8, ()), ("effective", ("--keep", "effective")), (0.6, ("--keep", "0.6", "--keep", "down_proj=all"))):
        out = tmp_path / f"published-{rule}"
        report = merge("monosoup", paths[1:2], out, *options, "--dtype", "f32")
        figures, expected = {t["name"]: t for t in report["tensors"]}, {}
        for name, d in deltas[1].items():
            expected[name] = d
            if not is_matrix(name) or (rule == 0.6 and "down_proj" in name) or not d.any():
                continue
            expected[name], k, energy, low = oracle.monosoup(d, np.linalg.norm(base[name]), rule)
            got = figures[name]
            assert got["k"] == k and abs(got["energy"] - energy) < 1e-5 and abs(got["lambda_low"] - low) < 2e-3, name
            assert got["lambda_high"] == pytest.approx(1 - got["lambda_low"])
        expect(out, base, expected, 2e-3)
    out = tmp_path / "averaged"
    report = merge("monosoup", paths, out, "--form", "averaged", "--keep", "rank:6", "--dtype", "f32")
    expect(out, base, each(base, deltas, lambda d, n: sum(oracle.truncated(x, ("rank", 6))[0] if is_matrix(n) else x for x in d) / 3))
    largest = max(w.size for n, w in base.items() if is_matrix(n)) * 4
    assert largest < report["peak_bytes"] < 60 * largest


def test_opcm_is_the_reference_and_resumes(tmp_path, base, tunes):
    paths, deltas = tunes
    # The reference sees what the daemon's merge sees: only tensors that change.
    present = [{n: d for n, d in delta.items() if d.any()} for delta in deltas]
    expected, factor = oracle.opcm(present, 0.5, is_matrix)
    expected = {n: expected.get(n, np.zeros_like(w)) for n, w in base.items()}
    out = tmp_path / "all"
    report = merge("opcm", paths, out, "--dtype", "f32")
    assert report["lambda"] == pytest.approx(factor, rel=1e-4)
    expect(out, base, expected, 2e-3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all"]  # its state is gone

    state = tmp_path / "state"
    merge("opcm", paths[:2], tmp_path / "two", "--state", state, "--dtype", "f32")
    report = merge("opcm", paths, tmp_path / "three", "--state", state, "--dtype", "f32")
    assert [s["source"] for s in report["steps"]] == [str(paths[2])] and len(report["merged"]) == 3
    assert read_model(tmp_path / "three").keys() == base.keys()
    assert (tmp_path / "three" / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()
    # Another order than the one that was begun, another share, another base: refused, the state as it was.
    before = state.read_bytes()
    fresh = tmp_path / "fresh"
    merge("opcm", paths[1:2], tmp_path / "x", "--state", fresh)
    result = ctl("merge", "opcm", "--base", TINY, *paths[:2], "-o", tmp_path / "y", "--state", fresh, check=False)
    assert result.returncode == 2 and "does not hold" in result.stderr
    result = ctl("merge", "opcm", "--base", TINY, *paths, "-o", tmp_path / "y", "--state", state, "--share", "0.7", check=False)
    assert result.returncode == 2 and "0.5" in result.stderr
    other = write_f32(tmp_path / "other", {n: w * 1.5 for n, w in base.items()})
    result = ctl("merge", "opcm", "--base", other, *paths, "-o", tmp_path / "y", "--state", state, check=False)
    assert result.returncode == 2 and "another base" in result.stderr
    assert state.read_bytes() == before and not (tmp_path / "y").exists()


def test_opcm_killed_in_the_middle_goes_on(tmp_path, tunes):
    """The state is either that before a step or that after it."""
    paths, _ = tunes
    state, whole = tmp_path / "state", tmp_path / "whole"
    merge("opcm", paths, whole, "--dtype", "f32")
    merge("opcm", paths[:1], tmp_path / "one", "--state", state, "--dtype", "f32")
    before = state.read_bytes()
    command = f"ulimit -f {len(before) // 1024 // 2}; exec {BUILD}/deltactl merge opcm --base {TINY} {paths[0]} {paths[1]} -o {tmp_path}/x --state {state}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.returncode != 0 and state.read_bytes() == before
    merge("opcm", paths, tmp_path / "rest", "--state", state, "--dtype", "f32")
    assert (tmp_path / "rest" / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_lora_keeps_the_best_rank(tmp_path, base, tunes):
    paths, deltas = tunes
    for svd in ("exact", "randomized"):
        out = tmp_path / svd
        report = merge("lora", paths[1:2], out, "--rank", 4, "--svd", svd)
        factors = load_file(out / "adapter_model.safetensors")
        config = json.loads((out / "adapter_config.json").read_text())
        assert config["r"] == config["lora_alpha"] == 4 and config["peft_type"] == "LORA"
        for t in report["factors"]:
            name = t["name"]
            module = "base_model.model." + name.removesuffix(".weight")
            product = factors[module + ".lora_B.weight"].astype(np.float64) @ factors[module + ".lora_A.weight"].astype(np.float64)
            delta = deltas[1][name]
            best, _, energy = oracle.truncated(delta, ("rank", 4))
            error = np.linalg.norm(delta - product) / np.linalg.norm(delta)
            assert t["svd"] == svd and abs(t["error"] - error) < 1e-3, (name, t, error)
            assert energy * (0.9999 if svd == "exact" else 0.95) <= t["kept_energy"] <= energy + 1e-6
            if svd == "exact":
                assert np.abs(product - best).max() < 1e-3 * np.abs(best).max()
        low = next(t for t in report["factors"] if t["name"] == "model.layers.0.mlp.up_proj.weight")
        assert low["rank"] == 3 and low["kept_energy"] > 0.99999


def test_every_form_in_and_out(tmp_path, tunes):
    """Model folder, LoRA folder, sign delta: each is read and written, and what is written computes the same."""
    paths, _ = tunes
    lora = tmp_path / "lora"
    merge("lora", [VARIANTS / "finetune"], lora, "--rank", 64)
    sign = tmp_path / "sign.delta.safetensors"
    merged = merge("soup", [VARIANTS / "finetune"], sign, "--levels", 2, "--weights-only")
    direct = json.loads(ctl("compress", "--base", TINY, "--model", VARIANTS / "finetune", "-o", tmp_path / "direct.delta.safetensors",
                            "--levels", 2, "--weights-only", "--calibrate", "none", "--json").stdout)
    assert merged["digest"] == direct["digest"]  # the soup of one is that one
    for form, out in (("model", "m"), ("lora", "l"), ("sign", "s.delta.safetensors")):
        sources = [lora, sign, VARIANTS / "finetune", VARIANTS / "llama-row-1.delta.safetensors"]
        report = merge("task-arithmetic", sources, tmp_path / out, "--lambda", "0.25", "--as", form, "--weights-only")
        assert report["form"] == form
    ids = "3,99,200,17,450,6"
    ctl("verify", tmp_path / "s.delta.safetensors", "--base", TINY)
    ctl("compress", "--base", TINY, "--adapter", tmp_path / "l", "-o", tmp_path / "l.delta.safetensors", "--weights-only")
    ctl("logits", "--base", tmp_path / "m", "--ids", ids, "-o", tmp_path / "m.out")
    ctl("logits", "--base", TINY, "--delta", tmp_path / "s.delta.safetensors", "--ids", ids, "-o", tmp_path / "s.out")
    assert load_file(tmp_path / "m.out")["logits"].shape == load_file(tmp_path / "s.out")["logits"].shape


def test_adapters_are_sources_in_either_form(tmp_path, base):
    """A PEFT folder and the same adapter as a GGUF file."""
    lora = GOLDEN / "lora"
    for source in ("plain", "plain.gguf"):
        report = merge("soup", [lora / source, VARIANTS / "llama-row-1.delta.safetensors"], tmp_path / source, "--dtype", "f32")
        assert report["sources"][0] == str(lora / source)
    peft, gguf = read_model(tmp_path / "plain"), read_model(tmp_path / "plain.gguf")
    alone = read_applied(lora / "plain", tmp_path / "applied")
    sign = read_applied(VARIANTS / "llama-row-1.delta.safetensors", tmp_path / "sign")
    for name, w in base.items():
        scale = max(np.abs(peft[name] - w).max(), 1e-9)
        assert np.abs(peft[name] - gguf[name]).max() < 1e-4 * scale, name  # f16 in the file
        if is_matrix(name):  # the others are rounded to bf16
            assert np.abs(peft[name] - (alone[name] + sign[name]) / 2).max() < 1e-3 * scale, name
    assert any(np.abs(alone[n] - w).max() > 1e-2 for n, w in base.items())


def read_applied(delta, out) -> dict:
    ctl("apply", "--base", TINY, "--delta", delta, "-o", out, "--dtype", "f32")
    return read_model(out)


def test_a_gguf_base(tmp_path):
    gguf = GOLDEN / "gguf" / "llama-q8_0.gguf"
    ctl("merge", "soup", "--base", gguf, GOLDEN / "gguf" / "llama-q4_0.gguf", "-o", tmp_path / "m")
    ctl("logits", "--base", tmp_path / "m", "--ids", "3,99,200", "-o", tmp_path / "out")


def bad_source(tmp_path, base, change):
    tensors = {name: w.copy() for name, w in base.items()}
    change(tensors)
    return write_f32(tmp_path / "bad", tensors)


@pytest.mark.parametrize("method", ["soup", "ties", "monosoup", "opcm", "lora"])
def test_bad_values_keep_the_old_output(tmp_path, base, method):
    name = "model.layers.1.mlp.down_proj.weight"
    source = bad_source(tmp_path, base, lambda t: t[name].__setitem__((3, 2), np.nan))
    out = tmp_path / "out"
    merge(method, [VARIANTS / "finetune"], out, "--as", "model")
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    result = ctl("merge", method, "--base", TINY, source, "-o", out, "--as", "model", check=False)
    assert result.returncode == 2 and name in result.stderr and "row 3" in result.stderr and "bad" in result.stderr, result.stderr
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_what_does_not_fit_is_refused(tmp_path, base, tunes):
    paths, _ = tunes
    name = "model.layers.0.mlp.up_proj.weight"

    def refused(sources, *more, method="soup", code=2):
        result = ctl("merge", method, "--base", TINY, *sources, "-o", tmp_path / "out", *more, check=False)
        assert result.returncode == code and not (tmp_path / "out").exists(), result
        return result.stderr

    wrong = bad_source(tmp_path, base, lambda t: t.__setitem__(name, t[name][:-1]))
    assert name in refused([paths[0], wrong])
    other = tmp_path / "awkward.delta.safetensors"
    shutil.copy(sorted((GOLDEN / "variants" / "awkward").glob("*.delta.safetensors"))[0], other)
    assert "awkward" in refused([paths[0], other])
    assert "vocabulary" in refused([GOLDEN / "variants" / "llama_vocab" / "finetune"])
    assert "no tensor differs" in refused([TINY])
    assert "nowhere" in refused([tmp_path / "nowhere"])
    assert "one source" in refused(paths[:2], method="monosoup")
    assert "2 numbers for 3" in refused(paths, "--weights", "1,2")
    assert "all 0" in refused(paths[:2], "--weights", "0,0")
    assert "rank:0" in refused(paths[:1], "--keep", "rank:0", method="monosoup")
    assert "--memory" in refused(paths[:1], "--memory", "10000", method="monosoup", code=1)
    assert merge("monosoup", paths[:1], tmp_path / "fits", "--memory", "1MB", "--jobs", "8")["jobs"] < 8


@pytest.mark.parametrize("form", ["model", "lora", "sign"])
def test_disk_full_keeps_the_old_output(tmp_path, form):
    out = tmp_path / ("v.delta.safetensors" if form == "sign" else "v")
    merge("soup", [VARIANTS / "finetune"], out, "--as", form, "--weights-only")
    files = lambda: {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    before = files()
    command = (f"ulimit -f 20; trap '' XFSZ; exec {BUILD}/deltactl merge soup --base {TINY} {VARIANTS}/llama-row-1.delta.safetensors "
               f"-o {out} --as {form} --weights-only")
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, env=os.environ)
    assert result.returncode == 1 and result.stderr, result
    assert files() == before
