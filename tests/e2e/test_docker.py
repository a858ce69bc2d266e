"""docker/: the Dockerfile is clean, the Compose file passes a strict model, and the dashboard asks for what /metrics shows."""
import json
import re
import shutil
import subprocess
import sys

import pathlib

import pytest

from compose_models import Compose, Datasources, Prometheus, Providers
from conftest import GOLDEN, ROOT, TINY, running
from strict_yaml import documents

DOCKER = ROOT / "docker"
DASHBOARD = json.loads((DOCKER / "grafana" / "dashboards" / "deltad.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
HADOLINT = shutil.which("hadolint", path=str(pathlib.Path(sys.executable).parent)) or shutil.which("hadolint")


def load(model, file):
    [document] = documents(file)
    return model.model_validate(document)


def test_dockerfile_is_clean():
    assert HADOLINT, "no hadolint: scripts/setup installs it (scripts/requirements.txt)"
    result = subprocess.run([HADOLINT, DOCKER / "Dockerfile"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout) == (0, "")


def test_compose():
    compose = load(Compose, DOCKER / "compose.yaml")
    for name, service in compose.services.items():
        assert set(service.depends_on) <= compose.services.keys()
        for volume in service.volumes:
            source = volume.rsplit(":/", 1)[0]
            if source.startswith("."):
                assert (DOCKER / source).exists(), f"{name} mounts {source}"
            elif not source.startswith("$"):
                assert source in compose.volumes
    deltad = compose.services["deltad"]
    assert deltad.read_only and (DOCKER / deltad.build.context / deltad.build.dockerfile).exists()
    arguments = set(re.findall(r"^ARG (\w+)", (DOCKER / "Dockerfile").read_text(), re.M))
    assert deltad.build.args.keys() <= arguments
    server = load_config()["server"]
    inside = [address.rsplit(":", 1)[1] for address in (server["listen"], server["grpc"]["listen"])]
    assert [p.rsplit(":", 1)[1] for p in deltad.ports] == inside
    assert re.search(r"^EXPOSE (.*)$", (DOCKER / "Dockerfile").read_text(), re.M)[1].split() == inside
    published = [p.split(":")[1] for service in compose.services.values() for p in service.ports]
    assert len(set(published)) == len(published), "two services on one port of the machine"
    assert int(deltad.stop_grace_period.rstrip("s")) > load_config()["server"]["drain_seconds"]


def test_there_are_descriptors_for_all_connections():
    [config] = documents(ROOT / "config" / "deltad.yaml")
    unit = re.search(r"^LimitNOFILE=(\d+)$", (ROOT / "config" / "deltad.service").read_text(), re.M)
    for limit in (int(unit[1]), load(Compose, DOCKER / "compose.yaml").services["deltad"].ulimits["nofile"]):
        assert limit > 2 * config["server"]["max_connections"]


def load_config():
    [config] = documents(DOCKER / "deltad.yaml")
    return config


def test_prometheus_and_grafana_find_each_other():
    compose = load(Compose, DOCKER / "compose.yaml")
    prometheus = load(Prometheus, DOCKER / "prometheus" / "prometheus.yaml")
    [target] = prometheus.scrape_configs[0].static_configs[0].targets
    host, port = target.split(":")
    assert host in compose.services and load_config()["server"]["listen"].endswith(":" + port)
    [source] = load(Datasources, DOCKER / "grafana" / "datasource.yaml").datasources
    assert source.url == "http://prometheus:9090" and "prometheus" in compose.services
    [provider] = load(Providers, DOCKER / "grafana" / "provider.yaml").providers
    assert any(v.endswith(f":{provider.options.path}:ro") for v in compose.services["grafana"].volumes)
    uids = {p["datasource"]["uid"] for p in DASHBOARD["panels"] if p["type"] != "row"} | {DASHBOARD["templating"]["list"][0]["datasource"]["uid"]}
    assert uids == {source.uid}


def test_panels_lie_side_by_side():
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for panel in DASHBOARD["panels"]:
        g = panel["gridPos"]
        assert g["x"] + g["w"] <= 24
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_covers_what_an_operator_looks_for():
    text = " ".join(EXPRESSIONS)
    for name in ("deltad_requests_total", "deltad_time_to_first_token_seconds_bucket", "deltad_time_per_output_token_seconds_bucket",
                 "deltad_variant_residency", "deltad_load_seconds_bucket", "deltad_cache_evictions_total", "deltad_kv_blocks_used",
                 "deltad_queue_seconds_bucket"):
        assert name in text


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Every sample's name on /metrics, with the labels that it has there and their values."""
    config = tmp_path_factory.mktemp("config") / "deltad.yaml"
    config.write_text("variant_cache: {memory: 150KiB}\n")
    files = GOLDEN / "variants" / "llama"
    with running(["--base", TINY, "--config", config, "--variant", f"a={files}/llama-row-1.delta.safetensors",
                  "--variant", f"b={files}/llama-matrix-1.delta.safetensors"], tmp_path_factory.mktemp("shown")) as server:
        for model in ("llama", "a", "b"):
            assert server.post("/v1/completions", {"model": model, "prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True})[0] == 200
        page = server.get("/metrics")[2]
    names = {}
    for line in page.splitlines():
        if sample := re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", line):
            labels = names.setdefault(sample[1], {})
            for key, value in re.findall(r'(\w+)="([^"]*)"', sample[2] or ""):
                labels.setdefault(key, set()).add(value)
    return names


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_query_finds_its_metric(expression, shown):
    metrics = re.findall(r"\b(deltad_\w+)\{([^}]*)\}", expression)
    assert metrics and len(metrics) == len(re.findall(r"\bdeltad_\w+", expression)), "each is bound to the chosen instances"
    for name, matchers in metrics:
        assert name in shown, f"/metrics shows no {name}"
        for label, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers):
            if label != "instance":  # Prometheus adds it
                values = shown[name].get(label, set())
                found = [v for v in values if (re.fullmatch(value, v) if operator == "=~" else v == value)]
                assert found, f'{name} has no {label}="{value}", only {values}'
        grouped = re.search(r"by \(([^)]*)\)", expression)
        for label in re.split(r",\s*", grouped[1]) if grouped else []:
            assert label in shown[name], f"{name} has no label {label}"


def mounted_for_prometheus(folder: pathlib.Path) -> pathlib.Path:
    """What the Prometheus of Compose finds in /etc/prometheus."""
    for volume in load(Compose, DOCKER / "compose.yaml").services["prometheus"].volumes:
        source, inside, *_ = volume.split(":")
        if inside.startswith("/etc/prometheus/"):
            shutil.copy(DOCKER / source, folder / pathlib.Path(inside).name)
    return folder


def test_prometheus_has_the_alerts(tmp_path):
    rule_files = load(Prometheus, DOCKER / "prometheus" / "prometheus.yaml").rule_files
    there = mounted_for_prometheus(tmp_path)
    assert [(there / name).read_text() for name in rule_files] == [(ROOT / "config" / "alerts.yaml").read_text()]


def test_promtool_reads_the_queries_and_the_config(tmp_path):
    rules = [{"record": f"panel:{i}", "expr": e.replace("$__rate_interval", "1m").replace("$instance", ".*")} for i, e in enumerate(EXPRESSIONS)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    for command in (["check", "rules", file], ["check", "config", mounted_for_prometheus(tmp_path) / "prometheus.yaml"]):
        result = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr
