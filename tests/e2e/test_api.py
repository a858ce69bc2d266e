"""The OpenAI API of a real server on a tiny model: formats, streaming, parameters, errors."""
import concurrent.futures
import json

import openai
import pytest

from conftest import tiny  # noqa: F401  (a fixture)

CHAT = [{"role": "user", "content": "hello there"}]


def stream_of(client, **options):
    return list(client.chat.completions.create(messages=CHAT, stream=True, stream_options={"include_usage": True}, **options))


def test_models_say_base_and_variants(tiny):
    models = {m.id: m for m in tiny.client().models.list().data}
    assert set(models) == {"llama", "row", "two", "wide"}
    assert models["row"].parent == "llama" and models["row"].root.endswith("llama-row-1.delta.safetensors")
    assert tiny.client().models.retrieve("wide").id == "wide"
    with pytest.raises(openai.NotFoundError):
        tiny.client().models.retrieve("nobody")


@pytest.mark.parametrize("model", ["llama", "row", "two", "wide"])
def test_streamed_equals_unstreamed(tiny, model):
    client = tiny.client()
    options = {"model": model, "temperature": 0.8, "seed": 7, "max_tokens": 24, "n": 2}
    whole = client.chat.completions.create(messages=CHAT, **options)
    chunks = stream_of(client, **options)
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1
    for choice in whole.choices:
        mine = [c.choices[0] for c in chunks if c.choices and c.choices[0].index == choice.index]
        assert mine[0].delta.role == "assistant" and all(d.delta.role is None for d in mine[1:])
        assert "".join(d.delta.content or "" for d in mine) == choice.message.content
        assert mine[-1].finish_reason == choice.finish_reason and not mine[-1].delta.content
        assert all(d.finish_reason is None for d in mine[:-1])
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_variants_differ_from_the_base_and_from_each_other(tiny):
    ask = lambda m: tiny.post("/v1/completions", {"model": m, "prompt": [5, 6, 7, 8], "temperature": 0, "max_tokens": 16,
                                                  "return_token_ids": True, "ignore_eos": True})[1]["choices"][0]["token_ids"]
    answers = {m: tuple(ask(m)) for m in ("llama", "row", "two", "wide")}
    assert len(set(answers.values())) == 4


def test_a_request_does_not_depend_on_its_company(tiny):
    def ask(i):
        model = ["llama", "row", "two", "wide"][i % 4]
        return tiny.post("/v1/completions", {"model": model, "prompt": [3 + (7 * i + j) % 500 for j in range(1 + 5 * i % 60)],
                                             "temperature": 0.9, "seed": i, "max_tokens": 20, "logprobs": 3, "ignore_eos": True})[1]["choices"]

    alone = [ask(i) for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == alone


def test_logprobs(tiny):
    answer = tiny.client().chat.completions.create(model="row", messages=CHAT, max_tokens=12, temperature=0, logprobs=True,
                                                   top_logprobs=4)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(t.bytes) for t in content).decode(errors="replace") == answer.choices[0].message.content
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 4
        assert token.top_logprobs[0].token == token.token  # greedy
        values = [t.logprob for t in token.top_logprobs]
        assert values == sorted(values, reverse=True)


def test_completions_echo_and_lists(tiny):
    client = tiny.client()
    two = client.completions.create(model="llama", prompt=["one", "two"], max_tokens=3, temperature=0)
    assert [c.index for c in two.choices] == [0, 1]
    echoed = client.completions.create(model="llama", prompt="one", max_tokens=3, temperature=0, echo=True, logprobs=1)
    assert echoed.choices[0].text == "one" + two.choices[0].text
    assert echoed.choices[0].logprobs.token_logprobs[0] is None
    assert all(p <= 0 for p in echoed.choices[0].logprobs.token_logprobs[1:])
    scored = client.completions.create(model="llama", prompt="one", max_tokens=0, echo=True, logprobs=1)
    assert scored.choices[0].text == "one"


def test_stop_strings_and_tokens(tiny):
    client = tiny.client()
    free = client.completions.create(model="llama", prompt="hello", max_tokens=24, temperature=0, extra_body={"ignore_eos": True})
    text = free.choices[0].text
    stop = text[len(text) // 2:len(text) // 2 + 2]
    stopped = client.completions.create(model="llama", prompt="hello", max_tokens=24, temperature=0, stop=[stop],
                                        extra_body={"ignore_eos": True})
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].text == text[:text.index(stop)]
    streamed = "".join(c.choices[0].text for c in client.completions.create(
        model="llama", prompt="hello", max_tokens=24, temperature=0, stop=[stop], stream=True, extra_body={"ignore_eos": True}))
    assert streamed == stopped.choices[0].text


def test_prefix_cache_shows_in_usage(tiny):
    body = {"model": "two", "prompt": list(range(10, 90)), "max_tokens": 1, "temperature": 0}
    first = tiny.post("/v1/completions", body)[1]["usage"]
    again = tiny.post("/v1/completions", body)[1]["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["prompt_tokens_details"]["cached_tokens"] == 64  # whole blocks of 16, the last prompt token never
    other = tiny.post("/v1/completions", {**body, "model": "llama"})[1]["usage"]
    assert other["prompt_tokens_details"]["cached_tokens"] == 0  # another variant shares nothing


def test_tokenize_and_back(tiny):
    status, tokens = tiny.post("/tokenize", {"model": "llama", "prompt": "hello wörld"})
    assert status == 200 and tokens["count"] == len(tokens["tokens"])
    status, text = tiny.post("/detokenize", {"model": "llama", "tokens": tokens["tokens"]})
    assert text["prompt"] == "hello wörld"


@pytest.mark.parametrize("change,param,status", [
    ({"temperature": 3}, "temperature", 400),
    ({"temperature": "warm"}, "temperature", 400),
    ({"top_p": 0}, "top_p", 400),
    ({"n": 0}, "n", 400),
    ({"max_tokens": -1}, "max_tokens", 400),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", 400),
    ({"response_format": {"type": "json_object"}}, "response_format", 400),
    ({"logit_bias": {"x": 1}}, "logit_bias", 400),
    ({"no_such_thing": 1}, "no_such_thing", 400),
    ({"messages": []}, "messages", 400),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages", 400),
    ({"model": "nobody"}, "model", 404),
])
def test_bad_parameters_are_named(tiny, change, param, status):
    got, answer = tiny.post("/v1/chat/completions", {"model": "llama", "messages": CHAT, "max_tokens": 4, **change})
    assert got == status and set(answer["error"]) == {"message", "type", "param", "code"}, answer
    assert (answer["error"]["param"] or "").startswith(param), answer


def test_prompt_too_long_says_both_counts(tiny):
    got, answer = tiny.post("/v1/completions", {"model": "llama", "prompt": [5] * 5000, "stream": True})
    assert got == 400 and "5000" in answer["error"]["message"], answer


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff\xfe{}", b'{"model": "\xff"}', b"[" * 1000 + b"]" * 1000,
                                 b'{"a":' * 1000 + b"1" + b"}" * 1000, b""])
def test_malformed_bodies(tiny, raw):
    status, _, text = tiny.request("POST", "/v1/chat/completions", raw=raw)
    assert status == 400 and json.loads(text)["error"]["message"]


def test_body_over_the_limit(tiny):
    status, _, text = tiny.request("POST", "/v1/chat/completions", raw=b" " * (9 << 20))
    assert status in (413, 0)  # 0: closed while still sending
    assert tiny.get("/health")[0] == 200


def test_request_ids(tiny):
    _, headers, _ = tiny.request("GET", "/v1/models", headers={"X-Request-Id": "abc-1"})
    assert headers["X-Request-Id"] == "abc-1"
    _, headers, _ = tiny.request("GET", "/v1/models")
    assert headers["X-Request-Id"]


def test_metrics(tiny):
    text = tiny.get("/metrics")[2]
    for name in ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:lora_requests_info",
                 "deltad_variant_resident_bytes", "deltad_http_path_seconds"):
        assert name in text, name
