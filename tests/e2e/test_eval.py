"""deltactl eval on the tiny model: figures against numpy over the logits, and a server against this process."""
import http.server
import json
import shutil
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file

from conftest import GOLDEN, TINY, ctl

VARIANT = GOLDEN / "variants" / "llama" / "llama-row-1.delta.safetensors"
LORA = GOLDEN / "lora"
PROMPTS = ["hi", "What is this?", "one two three", "Bill: 2 pens.", "x", "the quick brown fox"]
TEXT = "The quick brown fox jumps over the lazy dog. " * 12


def evaluate(*arguments) -> dict:
    return json.loads(ctl("eval", *arguments, "--json").stdout)


def write_questions(path, pairs):
    path.write_text("".join(json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in pairs))
    return path


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def wilson(k, n, z=1.959963984540054):
    p = k / n
    center, half = (p + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return [center - half, center + half]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """Questions of which the base answers the first three as expected."""
    folder = tmp_path_factory.mktemp("questions")
    asked = write_questions(folder / "asked.jsonl", [(p, "never said") for p in PROMPTS])
    nothing = evaluate("--base", TINY, "--questions", asked, "--max-tokens", 6, "--answers", folder / "answers.jsonl")
    assert nothing["exact_match"] == 0 and nothing["n"] == 6 and nothing["exact_match_interval"][0] == 0
    answers = [json.loads(line)["text"] for line in (folder / "answers.jsonl").open()]
    return write_questions(folder / "q.jsonl", [(p, a if i < 3 else a + "!") for i, (p, a) in enumerate(zip(PROMPTS, answers))])


def test_exact_match_counts(answered):
    result = evaluate("--base", TINY, "--questions", answered, "--max-tokens", 6)
    assert result["exact_match"] == 0.5 and result["n"] == 6 and result["correct"] == 3
    assert result["exact_match_interval"] == pytest.approx(wilson(3, 6))
    assert result["answers"]["perplexity"] > 1 and result["answers"]["perplexity_interval"] is not None


def test_a_server_gives_the_same(answered, tiny):
    result = evaluate("--url", tiny.url, "--model", "llama", "--model", "row", "--questions", answered, "--max-tokens", 6)
    base, row = result["results"]
    assert base["exact_match"] == 0.5 and base["model"] == "llama"
    own = evaluate("--base", TINY, "--delta", VARIANT, "--questions", answered, "--max-tokens", 6)
    assert row["correct"] == own["correct"]
    # Perplexity too, from the log-probabilities of echoed prompts.
    assert row["answers"]["tokens"] == own["answers"]["tokens"]
    assert row["answers"]["perplexity"] == pytest.approx(own["answers"]["perplexity"], rel=1e-4)
    assert row["answers"]["perplexity_interval"] == pytest.approx(own["answers"]["perplexity_interval"], rel=1e-4)
    assert base["answers"]["perplexity"] != pytest.approx(row["answers"]["perplexity"], rel=1e-2)
    missing = ctl("eval", "--url", tiny.url, "--model", "nobody", "--questions", answered, check=False)
    assert missing.returncode == 2 and "nobody" in missing.stderr


def test_a_server_gives_the_perplexity_of_a_text(tiny, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    served = evaluate("--url", tiny.url, "--model", "row", "--text", text, "--context", 50)["text"]
    own = evaluate("--base", TINY, "--delta", VARIANT, "--text", text, "--context", 50)["text"]
    assert served["tokens"] == own["tokens"] and served["perplexity"] == pytest.approx(own["perplexity"], rel=1e-4)
    result = ctl("eval", "--url", tiny.url, "--model", "row", "--text", text, "--reference", "base", check=False)
    assert result.returncode == 2 and "whole distributions" in result.stderr


class OnlyChat(http.server.BaseHTTPRequestHandler):
    """A server that has nothing but chat completions, all of whose answers are 'yes'."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        known = self.path == "/v1/chat/completions"
        body = json.dumps({"choices": [{"message": {"content": "yes"}}]} if known else {"error": {"message": "no such route"}}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def test_a_server_without_logprobs_of_prompts_is_judged_by_exact_match_alone(tmp_path):
    asked = write_questions(tmp_path / "q.jsonl", [("a?", "yes"), ("b?", "no")])
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OnlyChat)
    threading.Thread(target=server.serve_forever).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        result = evaluate("--url", url, "--model", "m", "--questions", asked)
        assert result["exact_match"] == 0.5 and "answers" not in result and "/tokenize" in result["answers_unavailable"]
        said = ctl("eval", "--url", url, "--model", "m", "--questions", asked).stdout
        assert "not available" in said and "no such route" in said
        refused = ctl("eval", "--url", url, "--model", "m", "--text", text, check=False)
        assert refused.returncode == 2 and "echo, logprobs" in refused.stderr
    finally:
        server.shutdown()
        server.server_close()


def test_perplexity_kl_and_agreement_are_those_of_the_logits(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    lines = tmp_path / "texts.jsonl"
    lines.write_text(json.dumps({"text": TEXT}) + "\n")
    ids = json.loads(ctl("tokenize", TINY, "--texts", lines).stdout)["ids"]
    context, nll, kl, agreed = 50, [], [], 0
    for at in range(0, len(ids) - 1, context):
        piece = ids[at:at + context]
        logs = []
        for delta in ([], ["--delta", VARIANT]):
            ctl("logits", "--base", TINY, *delta, "--ids", ",".join(map(str, piece)), "-o", tmp_path / "l")
            logs.append(log_softmax(load_file(tmp_path / "l")["logits"])[:-1])
        base, variant = logs
        nll.append(-variant[np.arange(len(piece) - 1), piece[1:]])
        kl.append((np.exp(base) * (base - variant)).sum(axis=1))
        agreed += (base.argmax(1) == variant.argmax(1)).sum()
    result = evaluate("--base", TINY, "--delta", VARIANT, "--text", text, "--context", context, "--reference", "base")["text"]
    tokens = sum(map(len, nll))
    assert result["tokens"] == tokens
    assert result["perplexity"] == pytest.approx(np.exp(np.concatenate(nll).mean()), rel=1e-5)
    assert result["kl"] == pytest.approx(np.concatenate(kl).mean(), rel=1e-4) and result["kl"] > 0
    assert result["top1_agreement"] == pytest.approx(agreed / tokens)
    assert result["top1_agreement_interval"] == pytest.approx(wilson(agreed, tokens))
    mean = np.concatenate(nll).mean()
    error = np.sqrt(len(nll) / (len(nll) - 1) * sum((x.sum() - mean * len(x)) ** 2 for x in nll)) / tokens
    assert result["perplexity_interval"] == pytest.approx(list(np.exp([mean - 1.959964 * error, mean + 1.959964 * error])), rel=1e-5)


def test_references_of_each_form(tmp_path, answered):
    """A model is no different from itself; a variant as the base of another run is a model folder."""
    same = evaluate("--base", TINY, "--questions", answered, "--reference", TINY)["answers"]
    assert same["kl"] == pytest.approx(0, abs=1e-9) and same["top1_agreement"] == 1
    ctl("apply", "--base", TINY, "--delta", VARIANT, "-o", tmp_path / "full")
    full = evaluate("--base", TINY, "--delta", VARIANT, "--questions", answered, "--reference", tmp_path / "full")["answers"]
    far = evaluate("--base", TINY, "--questions", answered, "--reference", VARIANT)["answers"]
    assert full["kl"] < far["kl"] / 3


def test_every_form_of_variant_and_what_it_is_called(tmp_path, answered):
    """A variant file and folder, a PEFT folder, a GGUF adapter; merged models as the base and as the reference."""
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(VARIANT, folder)
    forms = [VARIANT, folder, LORA / "plain", LORA / "plain.gguf", LORA / "saved"]
    deltas = [a for form in forms for a in ("--delta", form)]
    results = evaluate("--base", TINY, *deltas, "--questions", answered, "--reference", LORA / "plain")["results"]
    assert [r["model"] for r in results] == ["llama-row-1", "folder", "plain", "plain", "saved"]
    assert [r["delta"] for r in results] == list(map(str, forms))
    file, same, peft, gguf, saved = (r["answers"] for r in results)
    assert file == same and file["kl"] > 0.1 and saved["kl"] > 0.1
    assert peft["kl"] == 0 and peft["top1_agreement"] == 1
    assert gguf["kl"] < 1e-4  # the same values in f16
    ctl("apply", "--base", TINY, "--delta", LORA / "plain", "-o", tmp_path / "merged")
    merged = evaluate("--base", tmp_path / "merged", "--questions", answered, "--reference", tmp_path / "merged")
    assert merged["model"] == "merged" and merged["answers"]["kl"] == 0
    for adapter in (LORA / "plain", LORA / "plain.gguf"):
        near = evaluate("--base", TINY, "--delta", adapter, "--questions", answered, "--reference", tmp_path / "merged")["answers"]
        # The merged model is rounded to bf16, the adapter is not.
        assert 0 < near["kl"] < file["kl"] / 20
        assert near["perplexity"] == pytest.approx(merged["answers"]["perplexity"], rel=0.05)
        other = evaluate("--base", TINY, "--questions", answered, "--reference", adapter)["answers"]
        assert other["kl"] > 0.1
    assert evaluate("--base", TINY, "--questions", answered, "--reference", folder)["answers"]["kl"] > 0.01


def test_bad_input_is_named(tmp_path, answered):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "a", "answer": "b"}\n{"prompt": "a"}\n')
    text = tmp_path / "empty.txt"
    text.write_text("")
    for arguments, word in ((("--base", TINY), "--questions or --text"), (("--questions", answered), "--base"),
                            (("--base", TINY, "--questions", bad), "line 2"), (("--base", TINY, "--text", tmp_path / "no"), "no"),
                            (("--url", "http://127.0.0.1:1", "--questions", answered), "--model"),
                            (("--url", "http://127.0.0.1:1", "--model", "x"), "--questions or --text"),
                            (("--url", "http://127.0.0.1:1", "--model", "x", "--delta", VARIANT, "--questions", answered), "--delta"),
                            (("--base", GOLDEN / "models" / "awkward", "--questions", answered), "tokenizer"),
                            (("--base", TINY, "--questions", answered, "--reference", "nowhere"), "nowhere")):
        result = ctl("eval", *arguments, check=False)
        assert result.returncode == 2 and word in result.stderr, (arguments, result)
