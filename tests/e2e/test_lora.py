"""LoRA adapters served as they are, beside the base and sign deltas; on a tiny model."""
import json
import shutil
import subprocess
import threading

from conftest import BUILD, GOLDEN, TINY, running, tiny_arguments

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
    for command in ("inspect", "verify"):
        result = subprocess.run([str(BUILD / "deltactl"), command, str(LORA / "plain")], capture_output=True, text=True)
        assert result.returncode in (1, 2) and "a LoRA adapter, not a variant file" in result.stderr
