"""deltactl bench-serve against a deltad on a tiny model: what it reports is what the server did."""
import json

import pytest

from conftest import ctl

MODELS = {"llama", "row", "two", "wide"}
TOKENS = ["--endpoint", "completions", "--prompt-ids", "3:500", "--prompt", "4:20", "--output", "3:12", "--ignore-eos"]


def bench(url, *arguments, code: int = 0) -> dict:
    result = ctl("bench-serve", "--url", url, "--json", *arguments, check=False)
    assert result.returncode == code, f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return json.loads(result.stdout)


def test_an_open_loop_counts_what_the_server_counts(tiny):
    counters = ("deltad_model_requests_total", "deltad_prompt_tokens_total", "deltad_output_tokens_total")
    before = {name: tiny.metric(name) for name in counters}
    report = bench(tiny.url, "--rate", 60, "--burst", 0.3, "--requests", 80, "--zipf", 0.5, "--slo", "e2e:600000", "--seed", 1, *TOKENS)
    total = report["total"]
    assert report["faults"] == 0 and total["requests"] == total["completed"] == 80 and total["errors"] == {}
    assert set(report["models"]) == MODELS and sum(m["requests"] for m in report["models"].values()) == 80
    assert [tiny.metric(name) - before[name] for name in counters] == [80, total["prompt_tokens"], total["output_tokens"]]
    assert 80 * 4 <= total["prompt_tokens"] <= 80 * 20 and 80 * 3 <= total["output_tokens"] <= 80 * 12
    assert total["ttft_ms"]["count"] == total["tpot_ms"]["count"] == total["e2e_ms"]["count"] == 80
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        d = total[name]
        assert 0 <= d["p50"] <= d["p90"] <= d["p99"] <= d["max"] and d["max"] > 0, name
    assert total["ttft_ms"]["p50"] <= total["e2e_ms"]["p50"]
    assert total["goodput"]["share"] == 1
    assert report["generator"]["late_ms"]["max"] >= 0 and report["generator"]["most_in_flight"] >= 1


def test_a_seed_gives_the_same_requests_whatever_their_pace(tiny):
    counts = []
    for pace in (["--rate", 200], ["--concurrency", 4]):
        report = bench(tiny.url, *pace, "--requests", 30, "--models", "llama,row,two", "--seed", 5, *TOKENS)
        counts.append({name: (m["requests"], m["prompt_tokens"], m["output_tokens"]) for name, m in report["models"].items()})
    assert counts[0] == counts[1]
    assert report["generator"]["most_in_flight"] == 4


@pytest.mark.parametrize("stream", [[], ["--no-stream"]])
def test_chat_in_a_closed_loop_and_its_table(tiny, stream):
    result = ctl("bench-serve", "--url", tiny.url + "/v1", "--concurrency", 3, "--requests", 12, "--models", "row,two", "--prompt", 5,
                 "--output", 6, "--warmup", 1, *stream)
    assert "12 requests in" in result.stdout and "12 answered, 0 not" in result.stdout
    assert "\nrow " in result.stdout and "\ntwo " in result.stdout and "\nend to end " in result.stdout
    assert ("\nTTFT " in result.stdout) == (not stream)


def test_a_duration_ends_either_loop(tiny):
    for pace in (["--rate", 40], ["--concurrency", 2]):
        report = bench(tiny.url, *pace, "--duration", 0.5, "--models", "llama", *TOKENS)
        assert report["total"]["completed"] == report["total"]["requests"] > 0


def test_a_trace_is_replayed(tiny, tmp_path):
    trace = tmp_path / "trace.jsonl"
    lines = [{"at": 0.01 * i, "model": ["row", "two", "row"][i % 3], "max_tokens": 2 + i,
              **({"prompt": "The year"} if i % 2 else {"prompt_tokens": 3})} for i in range(9)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    report = bench(tiny.url, "--trace", trace, "--endpoint", "completions", "--ignore-eos")
    assert report["models"]["row"]["completed"] == 6 and report["models"]["two"]["completed"] == 3
    assert report["total"]["output_tokens"] == sum(line["max_tokens"] for line in lines)
    assert report["total"]["errors"] == {}


def test_a_model_that_is_not_there_is_a_fault_with_the_servers_words(tiny):
    report = bench(tiny.url, "--concurrency", 1, "--requests", 3, "--models", "nobody", code=1)
    assert report["total"]["errors"] == {"404": 3} and "nobody" in report["error_details"]["404"]


@pytest.mark.parametrize("arguments, words", [
    ([], "one of --rate, --concurrency and --trace"),
    (["--rate", 1], "--requests or --duration"),
    (["--rate", 1, "--concurrency", 1, "--requests", 1], "one of --rate"),
    (["--concurrency", 1, "--requests", 1, "--burst", 0.5], "--burst needs --rate"),
    (["--rate", 1, "--requests", 1, "--prompt", "9:5"], '--prompt: "9:5"'),
    (["--rate", 1, "--requests", 1, "--slo", "ttft"], "--slo ttft"),
    (["--rate", 1, "--requests", 1, "--slo", "ttft:5", "--no-stream"], "need a stream"),
    (["--rate", 1, "--requests", 1, "--prompt-ids", "3:5"], "completions"),
    (["--rate", 1, "--requests", 1, "--body", "[1]"], "a JSON object was expected"),
    (["--rate", 1, "--requests", 1, "--body", '{"stream": false}'], 'must not set "stream"'),
    (["--trace", "/nowhere/trace.jsonl"], "/nowhere/trace.jsonl"),
])
def test_a_wrong_command_line_says_what_is_wrong(tiny, arguments, words):
    result = ctl("bench-serve", "--url", tiny.url, *arguments, check=False)
    assert result.returncode == 2 and words in result.stderr, result.stderr


def test_a_wrong_trace_says_the_line(tiny, tmp_path):
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"at": 0, "model": "row", "prompt_tokens": 3, "max_tokens": 2}\n{"at": 1}\n')
    result = ctl("bench-serve", "--url", tiny.url, "--trace", trace, check=False)
    assert result.returncode == 2 and "trace.jsonl, line 2: model is missing" in result.stderr, result.stderr
