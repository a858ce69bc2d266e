"""The adapter pool of a running deltad: adapters added, served under their names, merged under a budget, refused and removed, over
restarts and kill -9; on the tiny model and adapters made here."""
import json
import random
import shutil
import threading
import time

import numpy as np
import pytest

from conftest import GOLDEN, TINY, Server, ctl, free_port, running

LORA = GOLDEN / "lora"
PROMPTS = ["one", "the house", "what is it?", "12 + 30", "a b c d", "hello there", "red", "x"]
TOKENS = 12


def read_tensors(path) -> dict:
    """Of a bf16 safetensors file (8 bytes of length, a JSON header, the data), as fp32."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16"
        bits = np.frombuffer(body[slice(*entry["data_offsets"])], np.uint16).astype(np.uint32) << 16
        out[name] = bits.view(np.float32).reshape(entry["shape"])
    return out


def write_tensors(tensors: dict, path) -> None:
    header, body = {}, b""
    for name, t in tensors.items():
        data = (t.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": "BF16", "shape": t.shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def make_adapter(folder, seed: int):
    """Like lora/plain, but with other values."""
    random_ = np.random.default_rng(seed)
    folder.mkdir()
    shutil.copy(LORA / "plain" / "adapter_config.json", folder)
    tensors = read_tensors(LORA / "plain" / "adapter_model.safetensors")
    write_tensors({name: random_.standard_normal(t.shape) * t.std() for name, t in tensors.items()}, folder / "adapter_model.safetensors")
    return folder


def chat(server, model: str, prompt: str, tokens: int = TOKENS) -> str:
    status, answer = server.post("/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": prompt}],
                                                          "temperature": 0, "max_tokens": tokens})
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Adapters, what each answers, and an evaluation set of each that it answers perfectly."""
    folder = tmp_path_factory.mktemp("adapters")
    names = ["red", "green", "blue"]
    for i, name in enumerate(names):
        make_adapter(folder / name, i)
    arguments = [a for name in names for a in ("--variant", f"{name}={folder / name}")]
    with running(["--base", TINY, *arguments], folder) as server:
        answers = {name: {p: chat(server, name, p) for p in PROMPTS} for name in names}
        answers["llama"] = {p: chat(server, "llama", p) for p in PROMPTS}
    for p in PROMPTS:
        assert len({a[p] for a in answers.values()}) == len(answers), f"'{p}' does not tell the adapters apart"
    for name in names:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"prompt": p, "answer": answers[name][p]}) + "\n" for p in PROMPTS))
    return folder, answers


class Pool:
    """How to run a deltad with a pool, and what to ask of it."""

    def __init__(self, folder, budget: int, **settings):
        self.folder, self.admin = folder, free_port()
        self.config = folder / "pool.yaml"
        self.config.write_text(json.dumps({  # JSON is YAML
            "base": str(TINY), "variants": {"row": str(GOLDEN / "variants/llama/llama-row-1.delta.safetensors")},
            "server": {"admin": {"listen": self.admin}},
            "adapter_pool": {"folder": str(folder / "pool"), "budget": budget, "scoring_max_tokens": TOKENS, **settings}}))

    def running(self):
        return running(["--config", self.config], self.folder)

    def ask(self, server, method: str, path: str = "", body=None):
        status, _, text = server.request(method, "/admin/v1/pool" + path, body, url=f"http://127.0.0.1:{self.admin}")
        return status, json.loads(text) if text else None

    def post_add(self, server, made, name: str):
        return self.ask(server, "POST", "/adapters", {"name": name, "path": str(made / name), "questions": str(made / f"{name}.jsonl")})

    def ended(self, server, operation):
        found = {}

        def look():
            found["now"] = self.ask(server, "GET", f"/operations/{operation['id']}")[1]
            return found["now"]["state"] not in ("queued", "running")
        server.wait_for(look, 60, "the operation's end")
        return found["now"]

    def add(self, server, made, name: str):
        status, operation = self.post_add(server, made, name)
        assert status == 202, operation
        return self.ended(server, operation)

    def view(self, server):
        status, view = self.ask(server, "GET")
        assert status == 200
        return view

    def ctl(self, *arguments, **options):
        return ctl("pool", *arguments, "--server", f"http://127.0.0.1:{self.admin}", **options)


def one_bytes(tmp_path_factory, made) -> int:
    folder = tmp_path_factory.mktemp("one")
    pool = Pool(folder, 1 << 24)
    with pool.running() as server:
        assert pool.add(server, made, "red")["state"] == "done"
        return pool.view(server)["used_bytes"]


@pytest.fixture(scope="module")
def size(tmp_path_factory, made):
    """Bytes of one adapter in the pool."""
    return one_bytes(tmp_path_factory, made[0])


def models(server) -> dict:
    return {m["id"]: m for m in json.loads(server.get("/v1/models")[2])["data"]}


def test_adapters_answer_under_their_names_and_survive_a_restart(tmp_path, made):
    folder, answers = made
    pool = Pool(tmp_path, 1 << 24)
    with pool.running() as server:
        assert pool.view(server)["adapters"] == []
        for name in ("red", "green"):
            operation = pool.add(server, folder, name)
            assert operation["state"] == "done", operation
            assert operation["report"]["single_score"] == 1.0
        listed = models(server)
        for name in ("red", "green"):
            member = pool.ask(server, "GET", f"/adapters/{name}")[1]["served_by"]
            assert {p: chat(server, name, p) for p in PROMPTS} == answers[name]
            assert {p: chat(server, member["name"], p) for p in PROMPTS} == answers[name]
            # Both are listed; the root says that one answers for the other.
            for id in (name, member["name"]):
                assert listed[id]["parent"] == "llama" and listed[id]["root"] == member["path"]
        assert server.metric("deltad_pool_adapters") == 2 and server.metric("deltad_pool_members") == 2
        assert server.metric("deltad_pool_operations_total", operation="add", result="done") == 2
        assert server.metric("deltad_pool_used_bytes") == pool.view(server)["used_bytes"]
        before = pool.view(server)
    with pool.running() as server:
        after = pool.view(server)
        assert (after["adapters"], after["members"]) == (before["adapters"], before["members"])
        assert {p: chat(server, "red", p) for p in PROMPTS} == answers["red"]
        status, operation = pool.ask(server, "DELETE", "/adapters/red")
        assert status == 202 and pool.ended(server, operation)["state"] == "done"
        status, answer = server.post("/v1/completions", {"model": "red", "prompt": "x", "max_tokens": 1})
        assert status == 404 and answer["error"]["code"] == "model_not_found"
        assert "red" not in models(server) and len(pool.view(server)["members"]) == 1
        assert {p: chat(server, "green", p) for p in PROMPTS} == answers["green"]
        assert pool.add(server, folder, "red")["state"] == "done"


def test_a_full_pool_merges_and_one_member_answers_for_several(tmp_path, made, size):
    folder, answers = made
    pool = Pool(tmp_path, int(1.2 * size), policy="kmerge", merge_by="average", keep_share=0)
    with pool.running() as server:
        for name in ("red", "green", "blue"):
            operation = pool.add(server, folder, name)
            assert operation["state"] == "done", operation
        view = pool.view(server)
        assert len(view["members"]) == 1 and view["members"][0]["adapters"] == ["red", "green", "blue"]
        assert view["used_bytes"] <= view["budget_bytes"]
        member = view["members"][0]["name"]
        merged = [chat(server, member, p) for p in PROMPTS]
        assert merged != [answers["red"][p] for p in PROMPTS]
        for name in ("red", "green", "blue"):
            assert [chat(server, name, p) for p in PROMPTS] == merged
        assert server.metric("deltad_variant_resident_bytes", variant="red") == 0
        assert server.metric("deltad_variant_loads_total", variant=member) == 1, "one copy for all names"
    with pool.running() as server:
        assert [chat(server, "blue", p) for p in PROMPTS] == merged


def test_without_room_that_passes_the_gate_an_add_is_refused_with_the_figures(tmp_path, made, size):
    folder, answers = made
    pool = Pool(tmp_path, int(1.2 * size), policy="kmerge", keep_share=1)
    with pool.running() as server:
        done = pool.ctl("add", "red", folder / "red", folder / "red.jsonl")
        assert "add red: done" in done.stdout and "store of red" in done.stdout
        refused = pool.ctl("add", "green", folder / "green", folder / "green.jsonl", check=False)
        assert refused.returncode == 1
        for part in ("add green: failed", "similarity", "of 100.0 % alone", "not kept"):
            assert part in refused.stdout, refused.stdout
        as_json = pool.ctl("add", "green", folder / "green", folder / "green.jsonl", "--json", check=False)
        assert as_json.returncode == 1
        operation = json.loads(as_json.stdout)
        assert operation["error"]["status"] == 507 and len(operation["report"]["trials"]) >= 1
        assert {p: chat(server, "red", p) for p in PROMPTS} == answers["red"]
        assert server.post("/v1/completions", {"model": "green", "prompt": "x"})[0] == 404
        assert server.metric("deltad_pool_operations_total", operation="add", result="failed") == 2
        # With more room it comes in.
        assert pool.ctl("budget", f"{2 * size // 1024 + 1}KiB").returncode == 0
        assert pool.ctl("add", "green", folder / "green", folder / "green.jsonl").returncode == 0
        table = pool.ctl("list").stdout
        assert "2 adapters in 2 members" in table and "red" in table and "pool/" in table
        assert json.loads(pool.ctl("list", "--json").stdout)["object"] == "adapter_pool"
        assert "100.0 %" in pool.ctl("show", "green").stdout
        # Less than both need is refused, and nothing changes.
        smaller = pool.ctl("budget", str(size // 8), check=False)
        assert smaller.returncode == 1 and "budget" in smaller.stdout
        assert len(pool.view(server)["members"]) == 2
        assert pool.ctl("remove", "green").returncode == 0
        for arguments, code in ((("show", "green"), 2), (("remove", "nobody"), 2), (("budget", "much"), 2),
                                (("add", "row", folder / "red", folder / "red.jsonl"), 1),
                                (("add", "red", folder / "red", folder / "red.jsonl"), 1)):
            assert pool.ctl(*arguments, check=False).returncode == code, arguments


def test_hostile_adapters_and_questions_are_refused_and_serving_goes_on(tmp_path, made):
    folder, answers = made
    bad = tmp_path / "bad"
    bad.mkdir()
    questions = bad / "good.jsonl"
    shutil.copy(folder / "red.jsonl", questions)

    def changed(name, tensors=None, **settings):
        shutil.copytree(folder / "red", bad / name)
        config = json.loads((bad / name / "adapter_config.json").read_text())
        (bad / name / "adapter_config.json").write_text(json.dumps({**config, **settings}))
        if tensors:
            file = bad / name / "adapter_model.safetensors"
            write_tensors(tensors(read_tensors(file)), file)
        return bad / name

    def poison(values):
        first = sorted(values)[0]
        values[first] = values[first].copy()
        values[first].flat[3] = np.nan
        return values
    cut = changed("cut") / "adapter_model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-10])
    (bad / "empty.jsonl").write_text("")
    (bad / "broken.jsonl").write_text('{"prompt": "x"}\n')
    cases = {"rank": (changed("rank", r=1 << 30), questions), "nan": (changed("nan", poison), questions), "cut": (cut.parent, questions),
             "shapes": (LORA / "layers", questions), "dense": (LORA / "saved", questions), "dora": (changed("dora", use_dora=True), questions),
             "up": (changed("up", base_model_name_or_path="../../../../etc/passwd", target_modules="../../x"), questions),
             "folder": (bad, questions), "unasked": (folder / "red", bad / "empty.jsonl"), "garbled": (folder / "red", bad / "broken.jsonl")}
    pool = Pool(tmp_path, 1 << 24)
    with pool.running() as server:
        assert pool.add(server, folder, "green")["state"] == "done"
        before = pool.view(server)
        files = sorted(p.name for p in (tmp_path / "pool").rglob("*"))
        for name, (path, evaluation) in cases.items():
            status, operation = pool.ask(server, "POST", "/adapters", {"name": name, "path": str(path), "questions": str(evaluation)})
            if status == 202:
                operation = pool.ended(server, operation)
                assert operation["state"] == "failed" and operation["error"]["status"] in (400, 404), (name, operation)
                assert operation["error"]["message"], name
            else:
                assert status == 400, (name, operation)
            assert server.post("/v1/completions", {"model": name, "prompt": "x", "max_tokens": 1})[0] == 404, name
        for name in ("a b", "a,b", "", "row", "llama", "pool/x", "x" * 300):
            status, answer = pool.ask(server, "POST", "/adapters", {"name": name, "path": str(folder / "red"), "questions": str(questions)})
            assert status in (400, 409), (name, answer)
        after = pool.view(server)
        assert (after["adapters"], after["members"]) == (before["adapters"], before["members"])
        assert sorted(p.name for p in (tmp_path / "pool").rglob("*")) == files
        assert {p: chat(server, "green", p) for p in PROMPTS} == answers["green"]


def test_streams_get_the_exact_answer_of_one_member_all_the_time(tmp_path, made, size):
    folder, answers = made
    pool = Pool(tmp_path, int(1.2 * size), policy="kmerge", merge_by="average", keep_share=0)
    with pool.running() as server:
        assert pool.add(server, folder, "red")["state"] == "done"
        seen, lost, stop = {}, [], threading.Event()

        def ask(name, prompt):
            while not stop.is_set():
                try:
                    seen.setdefault((name, prompt), set()).add(chat(server, name, prompt))
                except AssertionError as error:
                    lost.append(error)
        threads = [threading.Thread(target=ask, args=(name, p)) for name in ("red", "llama") for p in PROMPTS[:3]]
        for t in threads:
            t.start()
        allowed = {("red", p): {answers["red"][p]} for p in PROMPTS[:3]}
        for name in ("green", "blue"):
            assert pool.add(server, folder, name)["state"] == "done"
            for p in PROMPTS[:3]:
                allowed["red", p].add(chat(server, "red", p))
        stop.set()
        for t in threads:
            t.join()
        assert not lost, lost
        for p in PROMPTS[:3]:
            assert seen["llama", p] == {answers["llama"][p]}
            assert seen["red", p] <= allowed["red", p] and answers["red"][p] in seen["red", p]
        assert len(pool.view(server)["members"]) == 1


def test_kill_at_any_moment_of_an_add_leaves_the_pool_before_or_after(tmp_path, made, size):
    folder, answers = made
    pool = Pool(tmp_path, int(1.2 * size), policy="kmerge", merge_by="average", keep_share=0)
    with pool.running() as server:
        assert pool.add(server, folder, "red")["state"] == "done"
        start = time.monotonic()
        assert pool.add(server, folder, "green")["state"] == "done"
        took = time.monotonic() - start
        both = {p: chat(server, "red", p) for p in PROMPTS[:3]}
        status, operation = pool.ask(server, "DELETE", "/adapters/green")
        assert status == 202 and pool.ended(server, operation)["state"] == "done"
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "pool", saved)
    random_ = random.Random(5)
    for _ in range(8):
        shutil.rmtree(tmp_path / "pool")
        shutil.copytree(saved, tmp_path / "pool")
        server = Server(["--config", pool.config], tmp_path / "killed.log")
        try:
            server.wait_ready()
            before = pool.view(server)["members"]
            alone = {p: chat(server, "red", p) for p in PROMPTS[:3]}
            status, _ = pool.post_add(server, folder, "green")
            assert status == 202
            time.sleep(random_.uniform(0, 1.2 * took))
        finally:
            server.process.kill()
            server.process.wait()
        with pool.running() as server:
            view = pool.view(server)
            names = [a["name"] for a in view["adapters"]]
            if names == ["red"]:
                assert view["members"] == before
                assert {p: chat(server, "red", p) for p in PROMPTS[:3]} == alone
            else:
                assert names == ["green", "red"] and len(view["members"]) == 1
                for name in names:
                    chat(server, name, PROMPTS[0])
            named = {m["path"].rsplit("/", 1)[1] for m in view["members"]}
            assert {p.name for p in (tmp_path / "pool" / "members").iterdir()} == named
            assert not list((tmp_path / "pool" / "candidates").glob("*"))
    assert both  # answers of the merged member differ from run to run only by its file


def test_a_stop_cancels_an_add_and_the_pool_is_as_before(tmp_path, made):
    folder, answers = made
    long = tmp_path / "long.jsonl"
    long.write_text("".join(json.dumps({"prompt": f"{p} {i}", "answer": "?"}) + "\n" for i in range(400) for p in PROMPTS))
    pool = Pool(tmp_path, 1 << 24)
    with pool.running() as server:
        status, operation = pool.ask(server, "POST", "/adapters", {"name": "red", "path": str(folder / "red"), "questions": str(long)})
        assert status == 202
        server.wait_for(lambda: "scoring" in (pool.ask(server, "GET", "/operations/1")[1]["doing"] or ""), 30, "scoring")
    assert server.process.returncode == 0  # `running` has stopped it
    with pool.running() as server:
        assert pool.view(server)["adapters"] == []


def test_deltactl_cancels_an_add_and_warns_of_an_adapter_without_a_right_answer(tmp_path, made):
    folder, _ = made
    wrong = [json.dumps({"prompt": f"{p} {i}", "answer": "?"}) + "\n" for i in range(400) for p in PROMPTS]
    (tmp_path / "long.jsonl").write_text("".join(wrong))
    (tmp_path / "short.jsonl").write_text("".join(wrong[:4]))
    pool = Pool(tmp_path, 1 << 24)
    with pool.running() as server:
        out = pool.ctl("add", "red", folder / "red", tmp_path / "long.jsonl", "--no-wait")
        assert "1 add red" in out.stdout and "before" not in out.stdout  # nothing to report yet
        out = pool.ctl("cancel", 1, check=False)
        assert "1 add red: cancelled" in out.stdout and out.returncode != 0, (out.stdout, out.stderr)
        assert pool.view(server)["adapters"] == []
        out = pool.ctl("add", "red", folder / "red", tmp_path / "short.jsonl")
        assert "none of its questions" in out.stderr
        out = pool.ctl("cancel", 9, check=False)
        assert out.returncode != 0 and "9" in out.stderr


def test_a_variant_that_has_an_adapters_name_stops_the_start(tmp_path, made):
    folder, _ = made
    pool = Pool(tmp_path, 1 << 24)
    with pool.running() as server:
        assert pool.add(server, folder, "red")["state"] == "done"
        # While the pool has the name nobody else gets it.
        status, _, text = server.request("POST", "/admin/v1/variants", {"name": "red", "path": str(folder / "green")},
                                         url=f"http://127.0.0.1:{pool.admin}")
        assert status == 409, text
        status, _, text = server.request("DELETE", "/admin/v1/variants/red", url=f"http://127.0.0.1:{pool.admin}")
        assert status == 409 and "adapter pool" in text
    server = Server(["--config", pool.config, "--variant", f"red={folder / 'green'}"], tmp_path / "clash.log")
    assert server.process.wait(60) == 1
    assert "adapter pool" in server.log() and "'red'" in server.log()
