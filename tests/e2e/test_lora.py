"""LoRA adapters served as they are, beside the base and sign deltas; on a tiny model."""
import json
import shutil
import subprocess
import threading

from conftest import BUILD, GOLDEN, TINY, ctl, running, tiny_arguments

LORA = GOLDEN / "lora"
NAMES = ["llama", "row", "two", "plain", "scales", "saved", "regex", "gguf"]
PROMPTS = [[5, 6, 7], [1, 99, 42, 7], [300, 20]]


def arguments(*more):
    folders = [a for name in ("plain", "scales", "saved", "regex") for a in ("--variant", f"{name}={LORA / name}")]
    return tiny_arguments(*folders, "--variant", f"gguf={LORA / 'plain.gguf'}", *more)


def answer(server, model, prompt):
    status, body = server.post("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 24, "temperature": 0,
                                                   "ignore_eos": True})
    assert status == 200, body
    return body["choices"][0]["text"]


def test_a_mixed_batch_answers_as_each_alone(tmp_path):
    with running(arguments(), tmp_path) as server:
        alone = {(name, i): answer(server, name, p) for name in NAMES for i, p in enumerate(PROMPTS)}
        # The adapters do something, each another thing; a GGUF file of the same adapter does the same.
        for i in range(len(PROMPTS)):
            different = [alone[name, i] for name in NAMES if name != "gguf"]
            assert len(set(different)) == len(different)
            assert alone["plain", i] == alone["gguf", i]
        together = {}

        def ask(name, i):
            together[name, i] = answer(server, name, PROMPTS[i])
        threads = [threading.Thread(target=ask, args=key) for key in alone]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert together == alone
        models = json.loads(server.get("/v1/models")[2])
        assert {"plain", "gguf"} <= {m["id"] for m in models["data"]}


def test_a_refused_adapter_leaves_everything_running(tmp_path):
    def changed(name, **settings):
        folder = tmp_path / name
        shutil.copytree(LORA / "plain", folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, **settings}))
        return folder
    bad = {"dora": (changed("dora", use_dora=True), "use_dora"), "bias": (changed("bias", bias="all"), "bias"),
           "rank": (changed("rank", r=7), "expected [7, 160]"), "foreign": (LORA / "layers", "expected [5, 64]"),
           "other": (changed("other", use_magic=True), "use_magic")}
    cut = changed("cut") / "adapter_model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    bad["cut"] = (cut.parent, "adapter_model.safetensors")
    more = [a for name, (path, _) in bad.items() for a in ("--variant", f"{name}={path}")]
    with running(arguments(*more), tmp_path) as server:
        before = answer(server, "plain", PROMPTS[0])
        for name, (_, reason) in bad.items():
            status, body = server.post("/v1/completions", {"model": name, "prompt": [5], "max_tokens": 1})
            assert status == 503 and reason in body["error"]["message"], (name, body)
        assert answer(server, "plain", PROMPTS[0]) == before


def test_deltactl_takes_adapters_where_it_takes_variants(tmp_path):
    out = tmp_path / "logits"
    command = [BUILD / "deltactl", "logits", "--base", TINY, "--delta", LORA / "plain", "--ids", "5,6,7", "-o", out]
    assert subprocess.run([*map(str, command)], capture_output=True).returncode == 0 and out.stat().st_size > 0


def test_inspect_says_what_an_adapter_is():
    for name, kind, alpha in (("plain", "PEFT folder", "lora_alpha"), ("plain.gguf", "GGUF file", "adapter.lora.alpha")):
        for base in ((), ("--base", TINY)):
            found = json.loads(ctl("inspect", LORA / name, *base, "--json").stdout)
            assert found["kind"] == kind and found["settings"][alpha] == 8 and found["refused"] is None
            assert found["base_checked"] == bool(base) and len(found["digest"]) == 32
            modules = {m["name"]: m for m in found["modules"]}
            assert len(modules) == 21 and found["dense_tensors"] == [] and len(found["tensors"]) == 42
            up = modules["model.layers.0.mlp.up_proj.weight"]
            assert up["rank"] == 4 and up["scale"] == 2 and up["shape"] == [160, 64] and up["bytes"] == 4 * (160 + 64) * 2
            assert up["type"] == ("F16" if "gguf" in name else "BF16")
            assert found["bytes"] == sum(m["bytes"] for m in modules.values())
    scales = json.loads(ctl("inspect", LORA / "scales", "--base", TINY, "--json").stdout)
    by_module = {m["name"].split("layers.")[1].removesuffix(".weight"): (m["rank"], m["scale"]) for m in scales["modules"]}
    assert by_module["0.self_attn.q_proj"] == (17, 8 / 17 ** 0.5) and by_module["1.self_attn.q_proj"] == (5, 8 / 5 ** 0.5)
    assert by_module["1.mlp.gate_proj"] == (5, 5 / 5 ** 0.5) and by_module["2.mlp.down_proj"] == (1, 8)
    saved = json.loads(ctl("inspect", LORA / "saved", "--base", TINY, "--json").stdout)
    assert "lm_head.weight" in {t["name"] for t in saved["dense_tensors"]}
    text = ctl("inspect", LORA / "scales").stdout
    assert "rank          1, 3, 5, 17" in text and "give --base" in text


def test_inspect_says_what_is_refused_and_why(tmp_path):
    dora = shutil.copytree(LORA / "plain", tmp_path / "dora")
    config = json.loads((dora / "adapter_config.json").read_text())
    (dora / "adapter_config.json").write_text(json.dumps({**config, "use_dora": True}))
    found = json.loads(ctl("inspect", dora, "--json").stdout)
    assert "use_dora is true" in found["refused"] and "modules" not in found and len(found["tensors"]) == 42
    said = ctl("inspect", dora).stdout
    assert "use_dora is true" in said and "layers.0.mlp.up_proj.lora_A.weight" in said
    assert json.loads(ctl("inspect", LORA / "layers", "--json").stdout)["refused"] is None
    foreign = json.loads(ctl("inspect", LORA / "layers", "--base", TINY, "--json").stdout)
    assert "expected [5, 64]" in foreign["refused"]
    # Tied embeddings may take the head along: the base decides.
    tables = json.loads(ctl("inspect", LORA / "tables", "--json").stdout)
    assert tables["digest"] == "" and len(tables["modules"]) == 5
    cut = shutil.copytree(LORA / "plain", tmp_path / "cut") / "adapter_model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    result = ctl("inspect", cut.parent, check=False)
    assert result.returncode == 2 and "adapter_model.safetensors" in result.stderr


def test_verify_reads_every_value_of_an_adapter(tmp_path):
    for name in ("plain", "plain.gguf", "saved"):
        alone = json.loads(ctl("verify", LORA / name, "--json").stdout)
        checked = json.loads(ctl("verify", LORA / name, "--base", TINY, "--json").stdout)
        assert alone["ok"] and checked["ok"] and alone["digest"] == checked["digest"] != ""
        assert not alone["shapes_checked"] and checked["shapes_checked"]
    assert "unknown without the base" in ctl("verify", LORA / "tables").stdout
    assert json.loads(ctl("verify", LORA / "tables", "--base", GOLDEN / "models" / "awkward", "--json").stdout)["digest"]
    foreign = ctl("verify", LORA / "layers", "--base", TINY, check=False)
    assert foreign.returncode == 1 and "expected [5, 64]" in foreign.stderr
    nan = shutil.copytree(LORA / "plain", tmp_path / "nan") / "adapter_model.safetensors"
    data = bytearray(nan.read_bytes())
    data[-2:] = b"\xc0\x7f"
    nan.write_bytes(data)
    for base in ((), ("--base", TINY)):
        result = ctl("verify", nan.parent, *base, check=False)
        assert result.returncode == 1 and "a value is nan" in result.stderr
    assert "a value is nan" in json.loads(ctl("inspect", nan.parent, "--json").stdout)["refused"]
    assert ctl("verify", tmp_path / "nowhere.gguf", check=False).returncode == 2
