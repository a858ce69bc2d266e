"""Keys in a file: made by deltactl, scopes, limits, a file that changes; nothing secret in the log."""
import concurrent.futures
import json
import subprocess

import yaml
from conftest import BUILD, ctl, free_port, running, tiny_arguments


def new_key(*arguments):
    made = json.loads(ctl("key", "new", *arguments, "--json").stdout)
    return made["key"], made["line"]


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def write(path, *lines):
    path.write_text("keys:\n" + "\n".join(lines) + "\n" if lines else "keys: []\n")


def completion(server, key, model="row", tokens=4, prompt=(1, 2, 3)):
    status, headers, text = server.request(
        "POST", "/v1/completions", {"model": model, "prompt": list(prompt), "max_tokens": tokens, "ignore_eos": True},
        headers=bearer(key))
    return status, headers, json.loads(text)


def test_keys(tmp_path):
    admin = free_port()
    all_key, all_line = new_key("everything")
    row_key, row_line = new_key("row-only", "--model", "row", "--parallel", "2")
    few_key, few_line = new_key("few", "--tokens-per-minute", "60")
    op_key, op_line = new_key("operator", "--admin", "--model", "none")
    old_key, old_line = new_key("old", "--expires", "2001-01-01")
    keys = tmp_path / "keys.yaml"
    write(keys, all_line, row_line, few_line, op_line, old_line)
    assert all_key not in keys.read_text()
    listed = ctl("key", "list", keys).stdout
    assert "row-only" in listed and "expired" in listed
    config = tmp_path / "deltad.yaml"
    config.write_text(yaml.safe_dump({"server": {"keys_file": "keys.yaml", "admin": {"listen": admin}}}))

    with running(["--config", config, *tiny_arguments()], tmp_path) as server:
        assert server.get("/health")[0] == server.get("/metrics")[0] == 200
        models = {m["id"] for m in json.loads(server.request("GET", "/v1/models", headers=bearer(all_key))[2])["data"]}
        assert {"row", "two", "wide"} < models
        mine = json.loads(server.request("GET", "/v1/models", headers=bearer(row_key))[2])["data"]
        assert [m["id"] for m in mine] == ["row"]
        assert completion(server, row_key)[0] == completion(server, all_key, "two")[0] == 200
        status, _, body = completion(server, row_key, "two")
        assert status == 403 and body["error"]["code"] == "permission_denied" and body["error"]["param"] == "model"
        assert completion(server, row_key, "no-such-model")[2] == body  # the same: nothing is told of what there is
        for wrong in ("", "sk-wrong", old_key, all_key[:-1]):
            status, headers, _ = completion(server, wrong)
            assert status == 401 and headers["WWW-Authenticate"] == "Bearer"

        # Two at once, no more; others are not touched.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: completion(server, row_key, tokens=200)[:2], range(8)))
        refused = [headers for status, headers in answers if status == 429]
        assert refused and all(int(h["Retry-After"]) >= 1 for h in refused)
        assert completion(server, row_key)[0] == 200

        assert completion(server, few_key, tokens=90)[0] == 200
        server.wait_for(lambda: completion(server, few_key)[0] == 429, what="the limit of tokens")
        assert int(completion(server, few_key)[1]["Retry-After"]) >= 20

        def ask_admin(key):
            return server.request("GET", "/admin/v1/variants", headers=bearer(key), url=f"http://127.0.0.1:{admin}")[0]
        assert [ask_admin(k) for k in ("", "wrong", all_key, op_key)] == [401, 401, 403, 200]
        assert completion(server, op_key)[0] == 403

        # The file changes: one key goes, one comes; a broken file changes nothing.
        new, new_line = new_key("new")
        write(keys, row_line, new_line)
        server.wait_for(lambda: completion(server, new)[0] == 200, 30, "the new key")
        assert completion(server, all_key)[0] == 401
        keys.write_text("keys: [{name: x")
        server.wait_for(lambda: "API keys stay as they were" in server.log(), 30)
        assert completion(server, new)[0] == 200

        log = server.log()
        assert "key=row-only" in log
        for secret in (all_key, row_key, few_key, op_key, new, "sk-wrong"):
            assert secret not in log


def test_a_broken_file_at_the_start_is_named(tmp_path):
    config = tmp_path / "deltad.yaml"
    config.write_text(yaml.safe_dump({"server": {"keys_file": "keys.yaml"}}))
    for content, message in ((None, "keys.yaml"), ("keys: [{name: a, sha256: sk-oops}]", "64 hex digits")):
        if content:
            (tmp_path / "keys.yaml").write_text(content)
        for more in ([], ["--check-config"]):
            done = subprocess.run([BUILD / "deltad", "--config", config, *tiny_arguments(*more)], capture_output=True,
                                  text=True)
            assert done.returncode in (1, 2) and message in done.stderr and "sk-oops" not in done.stderr, done.stderr
