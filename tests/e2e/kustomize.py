"""As much of kustomize as docker/kubernetes uses: resources of other folders, labels for all, image names, patches that merge maps
and, by their names, containers. Checked against the real one where it is installed."""
import copy
import pathlib

from kubernetes_models import Kustomization
from strict_yaml import documents


def build(folder: pathlib.Path) -> list[dict]:
    """The resources that `kubectl kustomize FOLDER` prints."""
    [document] = documents(folder / "kustomization.yaml")
    settings = Kustomization.model_validate(document)
    result = []
    for name in settings.resources:
        path = folder / name
        result += build(path) if path.is_dir() else documents(path)
    for patch in settings.patches:
        for change in documents(folder / patch.path):
            [target] = [r for r in result if (r["kind"], r["metadata"]["name"]) == (change["kind"], change["metadata"]["name"])]
            _merge(target, change)
    for resource in result:
        for labels in settings.labels:
            _label(resource, labels.pairs)
        for container in _pod(resource).get("containers", []):
            for image in settings.images:
                if container["image"].split(":")[0] == image.name:
                    container["image"] = f"{image.newName}:{image.newTag}"
    return result


def _pod(resource: dict) -> dict:
    return resource["spec"]["template"]["spec"] if resource["kind"] == "Deployment" else {}


def _merge(target: dict, change: dict) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        elif key == "containers" and key in target:
            for container in value:
                [old] = [c for c in target[key] if c["name"] == container["name"]]
                _merge(old, container)
        else:
            target[key] = copy.deepcopy(value)


def _label(resource: dict, pairs: dict) -> None:
    resource["metadata"].setdefault("labels", {}).update(pairs)
    if resource["kind"] == "Service":
        resource["spec"].setdefault("selector", {}).update(pairs)
    if resource["kind"] == "Deployment":
        resource["spec"].setdefault("selector", {}).setdefault("matchLabels", {}).update(pairs)
        resource["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {}).update(pairs)
