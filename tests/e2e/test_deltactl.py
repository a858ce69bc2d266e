"""deltactl end to end on tiny models: compress, verify, apply and compute agree with each other and with the references."""
import json
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

from conftest import BUILD, GOLDEN, TINY, ctl

VARIANTS = GOLDEN / "variants"


def raw_tensors(path) -> dict:
    """name → (type, shape, bytes); numpy has no bf16."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    begin = 8 + size
    return {name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items()}


@pytest.mark.parametrize("name", ["llama", "llama_vocab", "awkward"])
@pytest.mark.parametrize("kind", ["matrix-1", "matrix-2", "row-1", "row-2"])
def test_compress_gives_the_reference_bytes(tmp_path, name, kind):
    reference = VARIANTS / name / f"{name}-{kind}.delta.safetensors"
    if not reference.exists():
        pytest.skip("no reference of this kind")
    alpha, levels = kind.split("-")
    base = GOLDEN / "models" / name.split("_")[0]
    out = tmp_path / "v.delta.safetensors"
    report = json.loads(ctl("compress", "--base", base, "--model", VARIANTS / name / "finetune", "-o", out, "--alpha", alpha,
                            "--levels", levels, "--weights-only", "--calibrate", "none", "--json").stdout)
    assert report
    ours, theirs = raw_tensors(out), raw_tensors(reference)
    assert set(ours) == set(theirs)
    for tensor, value in theirs.items():
        assert ours[tensor] == value, tensor
    assert ctl("verify", out, "--base", base).returncode == 0
    assert json.loads(ctl("inspect", out, "--json").stdout)


@pytest.mark.parametrize("levels", ["1", "2"])
def test_compress_is_calibrated_and_says_what_it_costs(tmp_path, levels):
    out = tmp_path / "v.delta.safetensors"
    arguments = ("compress", "--base", TINY, "--model", VARIANTS / "llama" / "finetune", "-o", out, "--levels", levels, "--weights-only")
    report = json.loads(ctl(*arguments, "--json").stdout)["calibration"]
    assert 0 <= report["kl"] < report["kl_base"] and report["top1_base"] <= report["top1"] <= 1
    assert set(report["output_error"]) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert ctl("verify", out, "--base", TINY).returncode == 0
    metadata = json.loads(ctl("inspect", out, "--json").stdout)["metadata"]
    assert float(metadata["kl"]) == pytest.approx(report["kl"], rel=1e-3) and metadata["calibration"] == "shipped"
    assert "KL" in ctl("inspect", out).stdout
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 200)
    own = json.loads(ctl(*arguments, "--calibrate", text, "--json").stdout)
    assert own["calibration"]["tokens"] != report["tokens"]
    text.write_text("the quick brown fox jumps over the lazy dog and the cat and the bird and the cow")
    short = ctl(*arguments, "--calibrate", text)
    assert "short text" in short.stderr
    text.write_text("{oh")
    refused = ctl(*arguments, "--calibrate", text, check=False)
    assert refused.returncode == 2 and "line 1" in refused.stderr


def test_a_low_rank_part_and_distillation(tmp_path):
    out = tmp_path / "v.delta.safetensors"
    arguments = ("compress", "--base", TINY, "--model", VARIANTS / "llama" / "finetune", "-o", out, "--weights-only")
    plain = json.loads(ctl(*arguments, "--json").stdout)
    report = json.loads(ctl(*arguments, "--residual-rank", 4, "--distill", 3, "--json").stdout)
    assert report["calibration"]["kl"] < plain["calibration"]["kl"] and report["total"]["bytes"] > plain["total"]["bytes"]
    assert report["distilled"]["taken"] == (report["distilled"]["kl"] < report["distilled"]["kl_closed_form"])
    assert ctl("verify", out, "--base", TINY).returncode == 0
    shown = json.loads(ctl("inspect", out, "--json").stdout)
    assert shown["metadata"]["version"] == "2"
    assert shown["metadata"]["residual_rank"] == "4" and shown["low_rank_parts"] == report["total"]["matrices"]
    assert "residual rank" in ctl("inspect", out).stdout
    for option in ("--residual-rank", "--distill"):
        refused = ctl(*arguments, option, 4, "--calibrate", "none", check=False)
        assert refused.returncode == 2 and option in refused.stderr
    # Before the work, and before anything is written.
    refused = ctl(*arguments[:-2], tmp_path / "missing" / "v.delta.safetensors", "--distill", 10000, check=False)
    assert refused.returncode != 0 and "cannot write" in refused.stderr
    refused = ctl(*arguments[:-2], tmp_path / "folder", "--distill", 3, "--calibrate", "none", check=False)
    assert refused.returncode == 2 and not (tmp_path / "folder").exists()
    # What apply makes of it is what is served.
    ctl("apply", "--base", TINY, "--delta", out, "-o", tmp_path / "full", "--dtype", "f32")
    ids = "3,99,200,17,450,6,7,8,300,21"
    ctl("logits", "--base", TINY, "--delta", out, "--ids", ids, "-o", tmp_path / "a.safetensors")
    ctl("logits", "--base", tmp_path / "full", "--ids", ids, "-o", tmp_path / "b.safetensors", "--isa", "scalar")
    assert np.abs(load_file(tmp_path / "a.safetensors")["logits"] - load_file(tmp_path / "b.safetensors")["logits"]).max() < 0.2


def test_a_budget_buys_ranks(tmp_path):
    out = tmp_path / "v.delta.safetensors"
    lora = GOLDEN / "lora" / "plain"
    arguments = ("compress", "--base", TINY, "--adapter", lora, "-o", out)

    def made(*options) -> tuple[dict, dict]:
        report = json.loads(ctl(*arguments, *options, "--json").stdout)
        assert ctl("verify", out, "--base", TINY).returncode == 0
        return report, json.loads(ctl("inspect", out, "--json").stdout)

    one, _ = made()
    same, shown = made("--budget", "1.0bit")
    assert same["digest"] == one["digest"] and same["total"]["bytes"] == one["total"]["bytes"]
    assert shown["metadata"]["version"] == "1" and shown["low_rank_parts"] == 0
    levels, shown = made("--budget", "2.0bit", "--residual-rank", 0)
    assert shown["metadata"]["version"] == "1" and shown["low_rank_parts"] == 0 and "residual_rank" not in shown["metadata"]
    ranks, shown = made("--budget", "2.0bit")
    assert shown["metadata"]["version"] == "2" and shown["low_rank_parts"] > 0 and " to " in shown["metadata"]["residual_rank"]
    assert one["total"]["bytes"] < ranks["total"]["bytes"] <= 2 * one["total"]["bytes"]
    assert ranks["calibration"]["kl"] < levels["calibration"]["kl"] < one["calibration"]["kl"]
    assert "residual rank" in ctl("inspect", out).stdout
    # What it answers is what the adapter itself does.
    ids = "3,99,200,17,450,6,7,8,300,21"
    for name, delta in (("bought", ["--delta", out]), ("lora", ["--delta", lora]), ("base", [])):
        ctl("logits", "--base", TINY, *delta, "--ids", ids, "-o", tmp_path / f"{name}.safetensors")
    bought, adapter, base = (load_file(tmp_path / f"{name}.safetensors")["logits"] for name in ("bought", "lora", "base"))
    assert np.abs(bought - adapter).max() < 0.1 * np.abs(base - adapter).max()


def test_apply_computes_what_the_variant_computes(tmp_path):
    delta = VARIANTS / "llama" / "llama-row-2.delta.safetensors"
    ctl("apply", "--base", TINY, "--delta", delta, "-o", tmp_path / "full", "--dtype", "f32")
    ids = "3,99,200,17,450,6,7,8,300,21"
    ctl("logits", "--base", TINY, "--delta", delta, "--ids", ids, "-o", tmp_path / "a.safetensors", "--hidden")
    ctl("logits", "--base", tmp_path / "full", "--ids", ids, "-o", tmp_path / "b.safetensors", "--isa", "scalar")
    a, b = load_file(tmp_path / "a.safetensors"), load_file(tmp_path / "b.safetensors")
    assert a["hidden.layer.0"].shape == (10, 64)
    # The full model is rounded to bf16 when it is loaded again; the variant is not.
    assert np.abs(a["logits"] - b["logits"]).max() < 0.2


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text"])
def test_damaged_variants_are_refused_with_a_message(tmp_path, damage):
    file = tmp_path / "v.delta.safetensors"
    data = bytearray((VARIANTS / "llama" / "llama-row-1.delta.safetensors").read_bytes())
    if damage == "truncate":
        data = data[:len(data) // 2]
    elif damage == "flip":
        data[len(data) // 2] ^= 4
    elif damage == "empty":
        data = b""
    else:
        data = b"this is no variant at all, but it is long enough to look at"
    file.write_bytes(data)
    for command in (["verify", file, "--base", TINY], ["apply", "--base", TINY, "--delta", file, "-o", tmp_path / "o"],
                    ["logits", "--base", TINY, "--delta", file, "--ids", "3", "-o", tmp_path / "l"]):
        result = ctl(*command, check=False)
        assert result.returncode in (1, 2) and "v.delta.safetensors" in result.stderr + result.stdout, result
    assert not (tmp_path / "l").exists()


def test_an_adapter_that_matches_nothing_is_refused(tmp_path):
    result = ctl("compress", "--base", TINY, "--adapter", GOLDEN.parent.parent / "examples" / "variants" / "sql", "-o",
                 tmp_path / "v.delta.safetensors", check=False)
    assert result.returncode == 2 and "model.layers" in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []


def test_disk_full_keeps_the_old_file(tmp_path):
    out = tmp_path / "v.delta.safetensors"
    out.write_bytes(b"the old one")
    command = (f"ulimit -f 20; trap '' XFSZ; exec {BUILD}/deltactl compress --base {TINY} --model "
               f"{VARIANTS}/llama/finetune -o {out} --weights-only")
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and result.stderr, result
    assert out.read_bytes() == b"the old one" and [p.name for p in tmp_path.iterdir()] == [out.name]


def test_generate_tokenize_render(tmp_path):
    answer = json.loads(ctl("generate", "--base", TINY, "--chat", "hi", "--max-tokens", "8", "--json").stdout)
    assert answer["output_tokens"] <= 8 and answer["finish_reason"] in ("stop", "length")
    again = json.loads(ctl("generate", "--base", TINY, "--chat", "hi", "--max-tokens", "8", "--json").stdout)
    assert answer == again
    vectors = [json.loads(line) for line in (GOLDEN / "gguf" / "tokenizer-bytes512.jsonl").open()]
    texts = tmp_path / "texts.jsonl"
    texts.write_text("\n".join(json.dumps({"text": v["text"]}) for v in vectors) + "\n")
    for model in (TINY, GOLDEN / "gguf" / "llama-q8_0.gguf"):
        lines = [json.loads(line) for line in ctl("tokenize", model, "--texts", texts).stdout.splitlines()]
        assert [line["ids"] for line in lines] == [v["ids"] for v in vectors]
    messages = tmp_path / "messages.jsonl"
    messages.write_text(json.dumps([{"role": "user", "content": "hi"}]) + "\n")
    assert "hi" in json.loads(ctl("render", TINY, "--messages", messages).stdout)["text"]


def test_usage_errors_are_2():
    assert ctl("compress", check=False).returncode == 2
    assert ctl("no-such-command", check=False).returncode == 2
    assert ctl("verify", "/nowhere/v.delta.safetensors", check=False).returncode == 2


def test_bench_reports_json():
    report = json.loads(ctl("bench", "--base", TINY, "--delta", VARIANTS / "llama" / "llama-row-1.delta.safetensors", "--delta",
                            VARIANTS / "llama" / "llama-matrix-2.delta.safetensors", "--prompt", "20", "--generate", "8",
                            "--batch", "1,2", "--repeat", "1", "--json").stdout)
    assert report["memory_bytes_per_s"] > 0 and report["resident_bytes"] > 0
    kinds = [(tuple(r["variants"]), r["batch"]) for r in report["runs"]]
    assert kinds == [(("base",), 1), (("base",), 2), (("llama-row-1",), 1), (("llama-matrix-2",), 1),
                     (("llama-matrix-2", "llama-row-1"), 2)]
    assert all(r["prefill_tokens_per_s"] > 0 and r["generate_tokens_per_s"] > 0 for r in report["runs"])
    base = {r["batch"]: r["generate_tokens_per_s"] for r in report["runs"] if r["variants"] == ["base"]}
    for r in report["runs"]:  # one repetition: its ratio is that of the figures themselves
        expected = None if r["variants"] == ["base"] else r["generate_tokens_per_s"] / base[r["batch"]] - 1
        assert r["generate_beside_base"] == expected
