"""Many streams at once over mixed variants, with idle connections beside them: nothing is lost, mixed up or left behind."""
import concurrent.futures
import json
import socket

from conftest import running, tiny_arguments

MODELS = ["llama", "row", "two", "wide"]


def body(i: int) -> dict:
    return {"model": MODELS[i % 4], "prompt": [3 + (11 * i + j) % 500 for j in range(1 + 7 * (i % 9))], "temperature": 0, "max_tokens": 40,
            "ignore_eos": True, "return_token_ids": True}


def stream(server, i: int) -> list[int]:
    status, _, text = server.request("POST", "/v1/completions", {**body(i), "stream": True})
    assert status == 200 and text.rstrip().endswith("data: [DONE]")
    ids = []
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                ids += choice.get("token_ids") or []
    return ids


def test_64_streams_among_1000_idle_connections(tmp_path):
    with running(tiny_arguments(), tmp_path) as server:
        alone = [server.post("/v1/completions", body(i))[1]["choices"][0]["token_ids"] for i in range(64)]
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(1000)]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            together = list(pool.map(lambda i: stream(server, i), range(64)))
        assert together == alone
        for connection in idle:
            connection.close()
        assert server.metric("vllm:num_requests_running") == 0


def test_a_full_cache_and_queue_lose_nothing(tmp_path):
    """KV for little more than one long sequence, so that sequences wait and are preempted; answers stay the same."""
    config = tmp_path / "small.yaml"
    config.write_text("engine: {kv_cache: 96KiB, max_context: 256, max_running: 16}\n")
    with running(tiny_arguments("--config", config), tmp_path) as server:
        jobs = [{**body(i), "max_tokens": 100} for i in range(24)]
        alone = [server.post("/v1/completions", job)[1]["choices"][0]["token_ids"] for job in jobs[:6]]
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            together = list(pool.map(lambda job: server.post("/v1/completions", job)[1]["choices"][0]["token_ids"], jobs))
        assert together[:6] == alone and all(len(ids) == 100 for ids in together)
