"""docker/kubernetes: every resource passes a strict model, they fit each other, and their configs are read by deltad."""
import json
import re
import shutil
import subprocess

import pytest
import yaml

import kustomize
from conftest import BUILD, ROOT, TINY
from kubernetes_models import RESOURCE
from strict_yaml import documents

FOLDER = ROOT / "docker" / "kubernetes"
OVERLAYS = ["h100x8", "cpu"]


def resources(folder: str) -> dict:
    found = [RESOURCE.validate_python(r) for r in kustomize.build(FOLDER / folder)]
    return {r.kind if r.kind != "PersistentVolumeClaim" else r.metadata.name: r for r in found}


@pytest.fixture(params=OVERLAYS)
def overlay(request):
    return resources(request.param)


def pod_of(overlay):
    return overlay["Deployment"].spec.template.spec


def config_of(overlay) -> dict:
    return yaml.safe_load(overlay["ConfigMap"].data["deltad.yaml"])


def seconds(probe) -> int:
    return probe.periodSeconds * probe.failureThreshold


@pytest.mark.parametrize("folder", [*OVERLAYS, "gateway"])
@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here")
def test_the_real_kustomize_gives_the_same(folder):
    printed = subprocess.run(["kubectl", "kustomize", FOLDER / folder], capture_output=True, text=True, timeout=60, check=True).stdout
    key = lambda r: (r["kind"], r["metadata"]["name"])  # noqa: E731
    assert sorted(documents(printed), key=key) == sorted(kustomize.build(FOLDER / folder), key=key)


def test_every_file_is_used():
    used = {FOLDER / folder / "kustomization.yaml" for folder in [*OVERLAYS, "gateway", "base"]}
    for kustomization in list(used):
        [document] = documents(kustomization)
        used |= {kustomization.parent / name for name in [*document["resources"], *(p["path"] for p in document.get("patches", []))]}
    assert {f for f in FOLDER.rglob("*") if f.is_file()} <= used


def test_unknown_keys_are_refused():
    [deployment] = [r for r in kustomize.build(FOLDER / "cpu") if r["kind"] == "Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(ValueError, match="readinesProbe"):
        RESOURCE.validate_python(deployment)
    with pytest.raises(yaml.YAMLError, match="stands twice"):
        documents("spec: 1\nspec: 2\n")


def test_selectors_find_the_pods(overlay):
    labels = overlay["Deployment"].spec.template.metadata.labels
    pool = resources("gateway")["InferencePool"]
    for selector in (overlay["Deployment"].spec.selector.matchLabels, overlay["Service"].spec.selector,
                     overlay["PodDisruptionBudget"].spec.selector.matchLabels, overlay["PodMonitor"].spec.selector.matchLabels,
                     pool.spec.selector.matchLabels, pod_of(overlay).topologySpreadConstraints[0].labelSelector.matchLabels):
        assert selector and selector.items() <= labels.items()


def test_ports_agree_with_the_config(overlay):
    [container] = pod_of(overlay).containers
    ports = {p.name: p.containerPort for p in container.ports}
    assert ports.keys() == {"http", "grpc"}
    server = config_of(overlay)["server"]
    assert server["listen"] == f"0.0.0.0:{ports['http']}" and server["grpc"]["listen"] == f"0.0.0.0:{ports['grpc']}"
    assert [p.number for p in resources("gateway")["InferencePool"].spec.targetPorts] == [ports["http"]]
    assert {p.name: p.targetPort for p in overlay["Service"].spec.ports} == {"http": "http", "grpc": "grpc"}
    names = [overlay["PodMonitor"].spec.podMetricsEndpoints[0].port,
             container.startupProbe.httpGet.port, container.readinessProbe.httpGet.port, container.livenessProbe.httpGet.port]
    assert set(names) == {"http"}


def test_probes_ask_what_they_are_for(overlay):
    [container] = pod_of(overlay).containers
    assert container.startupProbe.httpGet.path == container.readinessProbe.httpGet.path == "/ready"
    assert container.livenessProbe.httpGet.path == "/health"
    assert seconds(container.startupProbe) >= 1800 and seconds(container.livenessProbe) >= 60 and seconds(container.readinessProbe) <= 5


def test_a_pod_has_time_to_drain(overlay):
    pod = pod_of(overlay)
    assert pod.terminationGracePeriodSeconds > config_of(overlay)["server"]["drain_seconds"] + pod.containers[0].lifecycle.preStop.sleep.seconds


def test_volumes_are_there_and_the_root_is_not_written(overlay):
    pod = pod_of(overlay)
    [container] = pod.containers
    assert {m.name for m in container.volumeMounts} == {v.name for v in pod.volumes}
    assert all(m.readOnly or m.mountPath == "/tmp" for m in container.volumeMounts)
    assert {v.persistentVolumeClaim.claimName for v in pod.volumes if v.persistentVolumeClaim} <= overlay.keys()
    assert {v.configMap.name for v in pod.volumes if v.configMap} == {overlay["ConfigMap"].metadata.name}
    mounts = {m.mountPath for m in container.volumeMounts}
    config = config_of(overlay)
    assert any(config["base"].startswith(m + "/") for m in mounts) and config["variant_watch"]["folder"] in mounts
    assert container.securityContext.readOnlyRootFilesystem and container.securityContext.capabilities.drop == ["ALL"]
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.M)
    assert (pod.securityContext.runAsUser, pod.securityContext.runAsGroup) == tuple(map(int, user.groups()))


def test_gpus():
    [gpu] = pod_of(resources("h100x8")).containers
    assert gpu.resources.limits["nvidia.com/gpu"] == 8
    [cpu] = pod_of(resources("cpu")).containers
    assert "nvidia.com/gpu" not in cpu.resources.limits
    assert config_of(resources("cpu"))["cpu"]["threads"] == int(cpu.resources.limits["cpu"])


def test_the_route_leads_to_the_pool():
    gateway = resources("gateway")
    [rule] = gateway["HTTPRoute"].spec.rules
    [backend], [parent] = rule.backendRefs, gateway["HTTPRoute"].spec.parentRefs
    assert backend.name == gateway["InferencePool"].metadata.name and parent.name == gateway["Gateway"].metadata.name
    assert gateway["InferencePool"].apiVersion.startswith(backend.group + "/")


def test_the_config_map_is_the_config():
    assert resources("h100x8")["ConfigMap"].data["deltad.yaml"] == (ROOT / "config" / "h100x8.yaml").read_text()


def test_the_rules_are_the_alerts():
    [rule] = [r for r in kustomize.build(FOLDER / "cpu") if r["kind"] == "PrometheusRule"]
    [alerts] = documents(ROOT / "config" / "alerts.yaml")
    assert rule["spec"] == alerts


def test_the_alerts_look_for_the_job_that_is_scraped(overlay):
    """Of a job by another name nobody would hear that it is gone."""
    [alerts] = documents(ROOT / "config" / "alerts.yaml")
    wanted = set(re.findall(r'job="([^"]*)"', json.dumps([r["expr"] for g in alerts["groups"] for r in g["rules"]]).replace('\\"', '"')))
    [compose] = documents(ROOT / "docker" / "prometheus" / "prometheus.yaml")
    assert wanted == {job["job_name"] for job in compose["scrape_configs"]}
    labels = overlay["Deployment"].spec.template.metadata.labels
    assert wanted == {labels[overlay["PodMonitor"].spec.jobLabel]}


@pytest.mark.parametrize("which", [*OVERLAYS, "image"])
def test_deltad_takes_the_config(which, tmp_path):
    text = (ROOT / "docker" / "deltad.yaml").read_text() if which == "image" else resources(which)["ConfigMap"].data["deltad.yaml"]
    config = yaml.safe_load(text)
    # The container's folders are not here: the same config with the base and the watched folder of this test. Eight ranks are more than
    # this base is enough for.
    config["base"], config["variant_watch"]["folder"] = str(TINY), str(tmp_path)
    file = tmp_path / "deltad.yaml"
    file.write_text(json.dumps(config))
    result = subprocess.run([BUILD / "deltad", "--config", file, "--check-config", "--tensor-parallel-size", "1"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
