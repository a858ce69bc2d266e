"""/metrics of a real server whose memory holds one of its two variants: loads, evictions and waits are counted as they happened."""
import pathlib
import re
import subprocess

import yaml

from conftest import GOLDEN, ROOT, TINY, running, tiny_arguments

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
        connection, _ = server.begin_stream({"model": "a", "prompt": [5, 6, 7], "max_tokens": 450, "ignore_eos": True, "n": 32})
        assert info() == ("1", "a", "")
        connection.close()
        server.wait_for(lambda: server.metric("deltad_model_running") == 0, what="nothing in use")
        assert info() == ("1", "a", "")  # loaded and idle: still where a request for it should go
        assert server.post("/v1/completions", {"model": "b", "prompt": [5, 6, 7], "max_tokens": 2})[0] == 200
        assert info() == ("1", "b", "")


SAMPLE = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\\]|\\\\.)*)"(?:,|$)')


def parse(page):
    """Family → (type, [(name, labels, value)]); asserts the text form's rules."""
    families, name = {}, None
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in families and len(line.split(" ", 3)[3]) > 3, line
            families[name] = [None, []]
        elif line.startswith("# TYPE "):
            assert line.split(" ")[2] == name and families[name][0] is None, line
            families[name][0] = line.split(" ")[3]
        else:
            sample, labels, value = SAMPLE.fullmatch(line).groups()
            found = LABEL.findall(labels or "")
            assert "".join(f'{k}="{v}",' for k, v in found).rstrip(",") == (labels or ""), line
            assert sample == name or (families[name][0] == "histogram" and sample in (name + "_bucket", name + "_sum", name + "_count")), line
            families[name][1].append((sample, dict(found), float(value)))
    for name, (kind, samples) in families.items():
        keys = [(s, tuple(sorted(l.items()))) for s, l, _ in samples]
        assert kind in ("counter", "gauge", "histogram") and len(set(keys)) == len(keys), name
    return families


def test_names_are_as_prometheus_wants_them_and_the_gateway_finds_its_own(tmp_path):
    config = tmp_path / "deltad.yaml"
    config.write_text("tracing: {endpoint: 'http://127.0.0.1:9/v1/traces', ratio: 0}\n")
    with running(tiny_arguments("--config", config), tmp_path) as server:
        body = {"prompt": [5, 6, 7], "max_tokens": 5, "ignore_eos": True}
        for model in ("llama", "row", "no such model", "nor this one"):
            server.post("/v1/completions", {**body, "model": model})
        page = server.get("/metrics")[2]
        families = parse(page)
        # promtool does not like the colons, which are not ours.
        own = "".join(line + "\n" for line in page.splitlines() if "vllm:" not in line)
        checked = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0 and not checked.stdout and not checked.stderr, checked

        vllm = {name: samples for name, (_, samples) in families.items() if name.startswith("vllm:")}
        assert set(vllm) == {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
                             "vllm:lora_requests_info"}
        for name, samples in vllm.items():
            assert len(samples) == 1, name
        (_, labels, value), = vllm["vllm:lora_requests_info"]
        assert set(labels) == {"max_lora", "running_lora_adapters", "waiting_lora_adapters"} and labels["max_lora"] == "3"
        assert abs(value - pathlib.Path("/proc/self").stat().st_ctime) < 1e6 and value > 1.7e9
        (_, labels, value), = vllm["vllm:cache_config_info"]
        assert int(labels["block_size"]) == 16 and int(labels["num_gpu_blocks"]) > 0 and value == 1

        value_of = lambda name, **labels: [v for _, l, v in families[name][1] if labels.items() <= l.items()]
        # Names that are no model's are one series.
        assert value_of("deltad_model_requests_total", model="unknown model") == [2]
        assert {l["model"] for _, l, _ in families["deltad_model_requests_total"][1]} == {"llama", "row", "two", "wide", "other variants",
                                                                                         "unknown model"}
        assert value_of("deltad_build_info", version="0.1.0") == [1] and value_of("deltad_draining") == [0]
        assert value_of("deltad_engine_healthy") == [1] and value_of("deltad_engine_stalled") == [0]
        gaps = {s: v for s, l, v in families["deltad_inter_token_seconds"][1] if "le" not in l}
        assert gaps["deltad_inter_token_seconds_count"] == 8  # four after each first token
        assert value_of("process_resident_memory_bytes")[0] > 1e6


def test_alert_rules():
    for command in (["check", "rules", ROOT / "config" / "alerts.yaml"], ["test", "rules", ROOT / "tests" / "e2e" / "alerts_test.yaml"]):
        result = subprocess.run(["promtool", *map(str, command)], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result


def test_every_alert_is_tested():
    text = (ROOT / "tests" / "e2e" / "alerts_test.yaml").read_text()
    tested = set(re.findall(r"\bDeltad[A-Z]\w+", text))
    groups = yaml.safe_load((ROOT / "config" / "alerts.yaml").read_text())["groups"]
    assert {rule["alert"] for group in groups for rule in group["rules"]} == tested


def test_alerts_name_metrics_that_exist(tmp_path):
    config = tmp_path / "deltad.yaml"
    config.write_text("tracing: {endpoint: 'http://127.0.0.1:9/v1/traces', ratio: 0}\n")
    with running(tiny_arguments("--config", config), tmp_path) as server:
        names = set(parse(server.get("/metrics")[2]))
    rules = yaml.safe_load((ROOT / "config" / "alerts.yaml").read_text())["groups"][0]["rules"]
    used = {re.sub("_bucket$", "", name) for rule in rules for name in re.findall(r"deltad_[a-z_]+", rule["expr"])}
    assert len(used) >= 10 and used <= names, used - names
