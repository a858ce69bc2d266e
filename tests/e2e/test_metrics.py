"""/metrics of a real server whose memory holds one of its two variants: loads, evictions and waits are counted as they happened."""
import http.client
import json
import re

from conftest import GOLDEN, SLOW, TINY, running

LINE = re.compile(r'^(# (HELP|TYPE) .+|[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (-?[0-9.e+-]+|\+Inf))$')


def test_what_the_cache_did_is_on_the_page(tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text("variant_cache: {memory: 150KiB}\n")
    broken = tmp_path / "broken.delta.safetensors"
    broken.write_text("no variant")
    files = GOLDEN / "variants" / "llama"
    with running(["--base", TINY, "--config", config, "--variant", f"a={files}/llama-row-1.delta.safetensors",
                  "--variant", f"b={files}/llama-matrix-1.delta.safetensors", "--variant", f"broken={broken}"], tmp_path) as server:
        def ask(model):
            status, _ = server.post("/v1/completions", {"model": model, "prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True})
            return status

        assert [ask(m) for m in ("llama", "a", "a", "b", "a", "broken")] == [200, 200, 200, 200, 200, 503]
        server.wait_for(lambda: server.metric("deltad_variants", state="failed") == 1, what="the failed load on the page")
        m = server.metric
        assert (m("deltad_cache_hits_total"), m("deltad_cache_misses_total")) == (1, 4)
        assert m("deltad_cache_evictions_total", tier="device", reason="room") == m("deltad_cache_evictions_total") == 2
        assert m("deltad_load_seconds_count", source="disk") == 3 and m("deltad_load_seconds_sum", source="disk") > 0
        assert m("deltad_load_failures_total") == 1 and m("deltad_variant_load_failures_total", variant="broken") == 1
        assert m("deltad_parked_seconds_count") == 4 and m("deltad_waiting") == 0
        assert [m("deltad_variant_loads_total", variant=v) for v in ("a", "b", "broken")] == [2, 1, 0]
        assert m("deltad_variant_residency", variant="a", place="device") == 1
        assert m("deltad_variant_residency", variant="b", place="disk") == 1
        assert m("deltad_cache_budget_bytes", tier="device") == 150 << 10
        assert m("deltad_cache_used_bytes") == m("deltad_variant_resident_bytes", variant="a") > 80_000
        for line in server.get("/metrics")[2].splitlines():
            assert LINE.match(line), line


def test_variants_in_memory_under_vllms_name(tmp_path):
    files = GOLDEN / "variants" / "llama"
    config = tmp_path / "small.yaml"
    config.write_text("variant_cache: {memory: 150KiB}\n")  # one variant
    with running(["--base", TINY, "--config", config, "--variant", f"a={files}/llama-row-1.delta.safetensors",
                  "--variant", f"b={files}/llama-matrix-1.delta.safetensors"], tmp_path) as server:
        def info():
            found = re.findall(r'^vllm:lora_requests_info\{max_lora="(.*)",running_lora_adapters="(.*)",waiting_lora_adapters="(.*)"\} ',
                               server.get("/metrics")[2], re.M)
            assert len(found) == 1
            return found[0]

        assert info() == ("2", "", "")  # sizes are not known yet
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30 * SLOW)
        body = {"model": "a", "prompt": [5, 6, 7], "max_tokens": 450, "ignore_eos": True, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().readline()
        assert info() == ("1", "a", "")
        connection.close()
        server.wait_for(lambda: server.metric("deltad_model_running") == 0, what="nothing in use")
        assert info() == ("1", "a", "")  # loaded and idle: still where a request for it should go
        assert server.post("/v1/completions", {"model": "b", "prompt": [5, 6, 7], "max_tokens": 2})[0] == 200
        assert info() == ("1", "b", "")
