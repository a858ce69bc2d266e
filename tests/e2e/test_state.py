"""/debug/state on the admin port: how everything stands, for those with an admin key."""
import json

from conftest import GOLDEN, TINY, free_port, running

FILES = GOLDEN / "variants" / "llama"


def test_what_runs_and_what_is_resident(tmp_path):
    port, config = free_port(), tmp_path / "deltad.yaml"
    config.write_text(f"server: {{admin: {{listen: {port}, api_keys: [secret]}}}}\nvariants: {{a: {FILES}/llama-row-1.delta.safetensors, "
                      f"b: {FILES}/llama-matrix-1.delta.safetensors}}\n")
    with running(["--base", TINY, "--config", config], tmp_path) as server:
        admin = f"http://127.0.0.1:{port}"

        def state():
            status, _, text = server.request("GET", "/debug/state", url=admin, headers={"Authorization": "Bearer secret"})
            assert status == 200, text
            return json.loads(text)

        assert server.request("GET", "/debug/state", url=admin)[0] == 401
        assert server.get("/debug/state")[0] == 404  # never on the public listener
        assert state()["batch"] == [] and state()["queue"]["models"] == []
        connection, _ = server.begin_stream({"model": "a", "prompt": [5, 6, 7], "max_tokens": 490, "ignore_eos": True, "n": 32})
        now = state()
        queue, = now["queue"]["models"]
        assert queue["model"] == "a" and queue["running"] >= 1 and queue["waiting"] + queue["running"] == 32
        assert now["engine"]["kv_blocks_used"] > 0 and now["engine"]["running"] >= 1
        assert sum(group["rows"] for group in now["batch"]) >= 1 and now["batch"][0]["model"] == "a"
        variants = {v["name"]: v for v in now["variants"]}
        assert (variants["a"]["state"], variants["b"]["state"]) == ("resident", "registered")
        assert now["cache"]["device"]["used_bytes"] == variants["a"]["bytes"] > 0 and now["loads"] == []
        assert len(now["config_digest"]) == 32 and now["healthy"] and not now["operation"]["draining"]
        assert now["requests"] == 32 and sum(now["first_token_seconds"]["counts"]) == 0
        assert now["spans"] is None
        connection.close()
        server.wait_for(lambda: state()["queue"]["models"] == [], what="nothing in use")
        assert sum(state()["first_token_seconds"]["counts"]) == 32 and sum(state()["per_token_seconds"]["counts"]) > 0
