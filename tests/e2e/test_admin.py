"""Variants added, used, replaced, kept, limited and removed while deltad runs; on the tiny model."""
import json
import pathlib
import shutil
import threading

import pytest

from conftest import GOLDEN, TINY, ctl, free_port, running

VARIANTS = GOLDEN / "variants"
ROW = VARIANTS / "llama" / "llama-row-1.delta.safetensors"
TWO = VARIANTS / "llama" / "llama-matrix-2.delta.safetensors"
OTHER_BASE = VARIANTS / "awkward" / "awkward-row-1.delta.safetensors"
KEY = {"Authorization": "Bearer s3cret"}


class Admin:
    """A deltad with an admin listener."""

    def __init__(self, server, port: int, headers):
        self.server, self.headers = server, headers
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body=None, headers=None, **options):
        """(status, document or text)."""
        status, answered, text = self.server.request(method, path, body, self.headers if headers is None else headers,
                                                     url=self.url, **options)
        return status, json.loads(text) if "json" in answered.get("Content-Type", "") else text

    def variant(self, name: str):
        status, found = self.ask("GET", f"/admin/v1/variants/{name}")
        assert status == 200, found
        return found

    def wait_state(self, name: str, state: str):
        self.server.wait_for(lambda: self.variant(name)["state"] == state, what=f"{name} {state}")

    def complete(self, model: str, **fields):
        """(status, answer) of a completion."""
        return self.server.post("/v1/completions", {"model": model, "prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0,
                                                    "ignore_eos": True, "return_token_ids": True, **fields})

    def tokens(self, model: str):
        status, answer = self.complete(model)
        assert status == 200, answer
        return answer["choices"][0]["token_ids"]


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("admin")
    port = free_port()
    config = folder / "deltad.yaml"
    config.write_text(json.dumps({  # JSON is YAML
        "base": str(TINY),
        "variants": {"row": str(ROW), "slow": {"path": str(TWO), "rate_limit": {"requests_per_second": 0.02, "burst": 2}}},
        "server": {"admin": {"listen": port, "api_keys": ["s3cret"]}}}))
    with running(["--config", config], folder) as server:
        yield Admin(server, port, KEY)


def error_of(answer, status: int) -> str:
    assert answer[0] == status, answer
    assert set(answer[1]["error"]) == {"message", "type", "param", "code"}
    return answer[1]["error"]["message"]


def test_keys_and_listeners(admin):
    error_of(admin.ask("GET", "/admin/v1/variants", headers={}), 401)
    error_of(admin.ask("GET", "/admin/v1/variants", headers={"Authorization": "Bearer wrong"}), 401)
    error_of(admin.ask("GET", "/admin/v1/variants", headers={**KEY, "Origin": "https://elsewhere"}), 403)
    error_of(admin.ask("POST", "/v1/completions", {"prompt": "x"}), 404)
    for path in ("/admin/v1/variants", "/v1/load_lora_adapter"):  # the other listener knows nothing of it
        assert admin.server.request("POST", path, {}, KEY)[0] == 404


def test_a_variant_is_added_used_replaced_and_removed(admin):
    base, row, two = admin.tokens("llama"), admin.tokens("row"), admin.tokens("slow")
    assert base != row != two
    name, path = "team/v1.5", "/admin/v1/variants/team%2Fv1.5"
    status, added = admin.ask("POST", "/admin/v1/variants", {"name": name, "path": str(ROW)})
    assert status == 201 and added["state"] == "registered" and added["digest"]
    assert name in [m.id for m in admin.server.client().models.list()]
    assert admin.tokens(name) == row
    used = admin.variant(name)
    assert used["state"] == "resident" and used["bytes"] > 0 and used["loads"] == 1
    assert used["idle_seconds"] is not None and used["requests_per_second"] > 0
    assert used["digest"] == added["digest"]

    assert "exists already" in error_of(admin.ask("POST", "/admin/v1/variants", {"name": name, "path": str(TWO)}), 409)
    assert admin.tokens(name) == row
    status, replaced = admin.ask("PUT", path, {"path": str(TWO)})
    assert status == 200 and replaced["digest"] != added["digest"]
    assert admin.tokens(name) == two
    assert admin.ask("POST", "/admin/v1/variants", {"name": name, "path": str(ROW), "replace": True})[0] == 200
    assert admin.tokens(name) == row

    status, removed = admin.ask("DELETE", path)
    assert (status, removed) == (200, {"object": "variant", "name": name, "deleted": True})
    assert admin.complete(name)[0] == 404
    error_of(admin.ask("DELETE", path), 404)
    error_of(admin.ask("PUT", path, {"path": str(ROW)}), 404)


def test_what_cannot_be_a_variant_is_refused(admin, tmp_path):
    text = tmp_path / "text.delta.safetensors"
    text.write_text("no variant")
    cut = tmp_path / "cut.delta.safetensors"
    cut.write_bytes(ROW.read_bytes()[:200])
    before = admin.ask("GET", "/admin/v1/variants")[1]["data"]
    for path, reason in ((text, "text.delta.safetensors"), (cut, "cut.delta.safetensors"), (OTHER_BASE, "base"),
                         (tmp_path / "nowhere", "does not exist"), (tmp_path, "*.delta.safetensors"),
                         ("relative", "absolute path")):
        for method, target, body in (("POST", "/admin/v1/variants", {"name": "bad"}), ("PUT", "/admin/v1/variants/row", {})):
            assert reason in error_of(admin.ask(method, target, {**body, "path": str(path)}), 400)
    assert "base model" in error_of(admin.ask("POST", "/admin/v1/variants", {"name": "llama", "path": str(ROW)}), 400)
    error_of(admin.ask("POST", "/admin/v1/variants", {"name": "a b", "path": str(ROW)}), 400)
    error_of(admin.ask("POST", "/admin/v1/variants", {"name": "a", "path": str(ROW), "force": 1}), 400)
    error_of(admin.ask("POST", "/admin/v1/variants", raw=b"{"), 400)
    after = admin.ask("GET", "/admin/v1/variants")[1]["data"]
    assert [(v["name"], v["digest"]) for v in after] == [(v["name"], v["digest"]) for v in before]


def test_pin_prefetch_and_evict(admin):
    path = "/admin/v1/variants/kept"
    assert admin.ask("POST", "/admin/v1/variants", {"name": "kept", "path": str(ROW)})[0] == 201
    status, pinned = admin.ask("POST", path + "/pin")
    assert status == 200 and pinned["pinned"]
    admin.wait_state("kept", "resident")
    cache = admin.ask("GET", "/admin/v1/cache")[1]["device"]
    assert cache["budget_bytes"] >= cache["used_bytes"] >= admin.variant("kept")["bytes"] > 0
    assert "pinned" in error_of(admin.ask("POST", path + "/evict"), 409)
    assert not admin.ask("POST", path + "/unpin")[1]["pinned"]
    assert admin.ask("POST", path + "/evict")[0] == 200
    admin.wait_state("kept", "registered")
    assert admin.ask("POST", path + "/prefetch")[0] == 202
    admin.wait_state("kept", "resident")
    assert admin.variant("kept")["loads"] == 2
    for action in ("pin", "unpin", "prefetch", "evict"):
        error_of(admin.ask("POST", "/admin/v1/variants/nobody/" + action), 404)
    assert admin.ask("DELETE", path)[0] == 200


def test_what_is_in_use_is_not_evicted_and_ends_on_the_weights_it_began_with(admin):
    def answer():
        status, answered = admin.complete("row", max_tokens=200)
        assert status == 200, answered
        return answered["choices"][0]["token_ids"]

    old, answers, done = answer(), [], threading.Event()

    def work():
        while not done.is_set():
            answers.append(answer())

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    try:
        def refused():  # in a moment when nobody uses it, it goes
            status, said = admin.ask("POST", "/admin/v1/variants/row/evict")
            return status == 409 and "in use by" in said["error"]["message"]
        admin.server.wait_for(refused, what="row in use")
        assert admin.ask("PUT", "/admin/v1/variants/row", {"path": str(TWO)})[0] == 200
        new = answer()
    finally:
        done.set()
        for worker in workers:
            worker.join()
    assert new != old and len(answers) >= 4 and all(tokens in (old, new) for tokens in answers)
    assert admin.ask("PUT", "/admin/v1/variants/row", {"path": str(ROW)})[0] == 200
    assert answer() == old


def test_vllm_aliases(admin):
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    row = admin.tokens("row")
    assert admin.ask("POST", load, {"lora_name": "sql", "lora_path": str(ROW)}) == \
        (200, "Success: LoRA adapter 'sql' added successfully.")
    assert admin.tokens("sql") == row
    assert "already been loaded" in error_of(admin.ask("POST", load, {"lora_name": "sql", "lora_path": str(ROW)}), 400)
    assert admin.ask("POST", load, {"lora_name": "sql", "lora_path": str(TWO), "load_inplace": True})[0] == 200
    assert admin.tokens("sql") != row
    assert "sql" in [m["id"] for m in admin.ask("GET", "/v1/models")[1]["data"]]
    assert admin.ask("POST", unload, {"lora_name": "sql"}) == \
        (200, "Success: LoRA adapter 'sql' removed successfully.")
    error_of(admin.ask("POST", unload, {"lora_name": "sql"}), 404)
    error_of(admin.ask("POST", load, {"lora_name": "sql"}), 400)


def test_rate_limits(admin):
    path = "/admin/v1/variants/limited"
    assert admin.ask("POST", "/admin/v1/variants", {"name": "limited", "path": str(ROW)})[0] == 201
    status, limited = admin.ask("PUT", path + "/rate_limit", {"requests_per_second": 0.02, "burst": 2})
    assert status == 200
    assert limited["rate_limit"] == {"requests_per_second": 0.02, "burst": 2, "tokens_per_minute": None}
    assert admin.complete("limited", n=4, temperature=1)[0] == 200  # one request
    assert admin.complete("limited")[0] == 200
    status, headers, text = admin.server.request("POST", "/v1/completions", {"model": "limited", "prompt": [5]})
    assert status == 429 and 1 <= int(headers["Retry-After"]) <= 50
    error = json.loads(text)["error"]
    assert error["code"] == "rate_limit_exceeded" and "0.02 requests a second" in error["message"]
    assert admin.complete("row")[0] == 200
    # The limit is the name's, whatever stands behind it.
    assert admin.ask("PUT", path, {"path": str(TWO)})[0] == 200
    assert admin.complete("limited")[0] == 429
    assert admin.ask("PUT", path + "/rate_limit", {"tokens_per_minute": 20})[0] == 200
    assert admin.complete("limited", max_tokens=60)[0] == 200  # 63 of 20: the rest is owed
    assert "tokens a minute" in error_of(admin.complete("limited"), 429)
    status, cleared = admin.ask("PUT", path + "/rate_limit", raw=b"null")
    assert status == 200 and cleared["rate_limit"] is None
    assert admin.complete("limited")[0] == 200
    assert admin.ask("DELETE", path)[0] == 200


def test_a_rate_limit_in_the_config(admin):
    assert admin.variant("slow")["rate_limit"]["requests_per_second"] == 0.02
    assert [admin.complete("slow")[0] for _ in range(3)][-1] == 429


def test_deltactl_variants(admin, tmp_path):
    where = ["--server", admin.url]
    key = {"env": {"DELTAD_ADMIN_KEY": "s3cret", "PATH": ""}}

    def variants(*arguments, code: int = 0):
        result = ctl("variants", *arguments, *where, check=False, **key)
        assert result.returncode == code, result.stdout + result.stderr
        return result

    shutil.copy(ROW, tmp_path / "mine.delta.safetensors")
    result = ctl("variants", "add", "org/mine", "mine.delta.safetensors", *where, cwd=tmp_path, **key)
    assert result.stdout == "org/mine: added\n"
    assert "exists already" in variants("add", "org/mine", ROW, code=1).stderr
    assert "added or replaced" in variants("add", "org/mine", TWO, "--replace").stdout
    variants("pin", "org/mine")
    admin.wait_state("org/mine", "resident")
    lines = variants("list").stdout.splitlines()
    assert lines[0].split() == ["name", "state", "size", "pinned", "running", "waiting", "req/s", "unused", "path"]
    line = next(line for line in lines if line.startswith("org/mine")).split()
    assert line[1] == "resident" and "yes" in line and line[-1] == str(TWO)
    listed = json.loads(variants("list", "--json").stdout)
    assert listed == {"object": "list", "data": listed["data"]} and "org/mine" in [v["name"] for v in listed["data"]]
    assert "is pinned" in variants("evict", "org/mine", code=1).stderr
    for action in ("unpin", "evict", "prefetch"):
        assert json.loads(variants(action, "org/mine", "--json").stdout)["name"] == "org/mine"
    variants("rm", "org/mine")
    assert "does not exist" in variants("rm", "org/mine", code=2).stderr
    assert "does not exist" in variants("add", "org/mine", tmp_path / "nowhere", code=2).stderr
    variants("list", "--api-key", "wrong", code=2)
    variants(code=2)
    assert ctl("variants", "list", "--server", f"http://127.0.0.1:{free_port()}", check=False).returncode == 1
    assert ctl("variants", "list", "--server", "ftp://x", check=False).returncode == 2


def test_a_failed_variant_says_why_and_when_it_is_tried_again(admin, tmp_path):
    path = pathlib.Path(shutil.copy(ROW, tmp_path / "gone.delta.safetensors"))
    assert admin.ask("POST", "/admin/v1/variants", {"name": "gone", "path": str(path)})[0] == 201
    path.unlink()
    assert admin.complete("gone")[0] == 503
    failed = admin.variant("gone")
    assert failed["state"] == "failed" and "gone.delta.safetensors" in failed["error"] and failed["retry_seconds"] <= 1
    assert "gone.delta.safetensors" in ctl("variants", "list", "--server", admin.url, "--api-key", "s3cret").stdout
    assert admin.ask("DELETE", "/admin/v1/variants/gone")[0] == 200
