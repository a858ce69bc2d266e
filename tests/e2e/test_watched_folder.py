"""Variants that come, change and go with the files of a folder, also under a daemon that is killed in the midst of it."""
import http.client
import json
import os
import shutil
import threading
import time

import pytest

from conftest import SLOW, TINY, Server, Versions, running

SETTLE = 0.2
FILES = Versions.FILES


def config(tmp_path, *lines) -> list:
    """Arguments of a deltad that watches tmp_path/watch."""
    (tmp_path / "watch").mkdir(exist_ok=True)
    file = tmp_path / "deltad.yaml"
    file.write_text("\n".join([f"base: {TINY}", f"variants: {{configured: {FILES[0]}}}",
                               f"variant_watch: {{folder: watch, settle_seconds: {SETTLE}}}", *lines]) + "\n")
    return ["--config", file]


def put(file, path):
    """Renames a copy into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    shutil.copy(file, aside)
    os.replace(aside, path)


def models(server) -> set[str]:
    return {m["id"] for m in json.loads(server.get("/v1/models")[2])["data"]} - {"llama", "configured"}


def settled(server, expected: set[str]):
    server.wait_for(lambda: models(server) == expected, what=f"the models are {expected}")


def test_variants_follow_the_folder(tmp_path, versions):
    watch = tmp_path / "watch"
    arguments = config(tmp_path)
    put(FILES[1], watch / "early.delta.safetensors")
    with running(arguments, tmp_path) as server:
        settled(server, {"early"})
        put(FILES[2], watch / "org" / "late.delta.safetensors")
        shutil.copytree(FILES[3].parent / "finetune", watch / "no-variant")  # a full model is none
        settled(server, {"early", "org/late"})
        assert versions.which(server, "early") == 1 and versions.which(server, "org/late") == 2

        # Replaced while a stream runs: that ends on the old version, new ones use the new.
        stream = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60 * SLOW)
        stream.request("POST", "/v1/completions", json.dumps({**versions.body("early", 0, 480), "stream": True}),
                       {"Content-Type": "application/json"})
        answer = stream.getresponse()
        first = answer.readline()
        put(FILES[4], watch / "early.delta.safetensors")
        server.wait_for(lambda: versions.which(server, "early") == 4, what="the new version answers")
        ids = []
        for line in [first, *answer.read().splitlines()]:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    ids += choice.get("token_ids") or []
        assert len(ids) == 480 and ids[:Versions.TOKENS] == versions.answers[1][0]

        # A damaged replacement changes nothing; the next good one is taken.
        data = bytearray(FILES[2].read_bytes())
        data[-10] ^= 1
        (watch / "early.delta.safetensors").write_bytes(data)
        server.wait_for(lambda: "the file is damaged" in server.log(), what="a warning")
        assert versions.which(server, "early") == 4
        put(FILES[5], watch / "early.delta.safetensors")
        server.wait_for(lambda: versions.which(server, "early") == 5, what="the good version answers")

        put(FILES[1], watch / "llama.delta.safetensors")
        put(FILES[1], watch / "configured.delta.safetensors")
        (watch / "broken.delta.safetensors").write_text("nothing")
        shutil.copy(FILES[1], os.fsencode(watch) + b"/caf\xe9.delta.safetensors")
        put(FILES[1], watch / "last.delta.safetensors")
        settled(server, {"early", "org/late", "last"})
        assert versions.which(server, "configured") == 0
        for reason in ("name of the base", "'configured' is taken by", "broken.delta.safetensors",
                       "caf\\xe9' is not UTF-8"):
            assert reason in server.log(), reason

        shutil.rmtree(watch)
        settled(server, set())
        status, error = server.post("/v1/completions", versions.body("early", 0))
        assert status == 404 and "early" in error["error"]["message"]
        server.wait_for(lambda: server.metric("deltad_cache_used_bytes", tier="device")
                        == server.metric("deltad_variant_resident_bytes", variant="configured"), what="the memory is given back")
        put(FILES[1], watch / "again.delta.safetensors")
        settled(server, {"again"})


def test_watching_uses_no_cpu(tmp_path, versions):
    with running(config(tmp_path), tmp_path) as server:
        put(FILES[1], tmp_path / "watch" / "a.delta.safetensors")
        settled(server, {"a"})
        time.sleep(2 * SETTLE * SLOW)
        ticks = lambda: sum(map(int, open(f"/proc/{server.process.pid}/stat").read().rsplit(") ", 1)[1].split()[11:13]))
        before = ticks()
        time.sleep(2)
        assert ticks() - before <= 4 * SLOW  # hundredths of a second


def start(arguments, tmp_path) -> Server:
    return Server(arguments, tmp_path / "killed.log").wait_ready()


def kill(server):
    assert server.process.poll() is None, server.log()
    server.process.kill()
    server.process.wait()
    server.log_file.close()


# Reading is so slow that what is read second waits for seconds: the file's size over the rate.
CRAWL = "variant_loading: {bytes_per_second: 10KiB}"


def in_the_midst(server, model, versions):
    """A request for the model waits for its load."""
    answers = []
    body = versions.body(model, 0)
    threading.Thread(target=lambda: answers.append(server.request("POST", "/v1/completions", body)), daemon=True).start()
    time.sleep(0.5)
    return answers


def test_killed_during_a_load(tmp_path, versions):
    watch = tmp_path / "watch"
    for i in (1, 2):
        put(FILES[i], watch / f"v{i}.delta.safetensors")
    server = start(config(tmp_path, CRAWL), tmp_path)
    settled(server, {"v1", "v2"})
    assert versions.which(server, "v1") == 1
    answers = in_the_midst(server, "v2", versions)
    assert not answers and "variant v2 loaded" not in server.log()
    kill(server)
    with running(config(tmp_path), tmp_path) as server:
        settled(server, {"v1", "v2"})
        assert [versions.which(server, name) for name in ("configured", "v1", "v2")] == [0, 1, 2]


@pytest.mark.parametrize("new", ["good", "damaged"])
def test_killed_during_a_replacement(tmp_path, versions, new):
    watch = tmp_path / "watch"
    put(FILES[1], watch / "v.delta.safetensors")
    server = start(config(tmp_path, CRAWL), tmp_path)
    settled(server, {"v"})
    assert versions.which(server, "v") == 1
    put(FILES[2], watch / "v.delta.safetensors")
    if new == "damaged":
        with open(watch / "v.delta.safetensors", "r+b") as file:
            file.seek(-10, os.SEEK_END)
            file.write(b"damaged")
    time.sleep(SETTLE + 0.5)  # the new version is being read, the old one serves
    assert versions.which(server, "v") == 1 and "variant v replaced" not in server.log()
    kill(server)
    with running(config(tmp_path), tmp_path) as server:
        settled(server, {"v"})
        if new == "good":
            assert versions.which(server, "v") == 2
        else:
            status, error = server.post("/v1/completions", versions.body("v", 0))
            assert status == 503 and "damaged" in error["error"]["message"]
            put(FILES[3], watch / "v.delta.safetensors")
            server.wait_for(lambda: "variant v replaced" in server.log(), what="the good file is taken")
            assert versions.which(server, "v") == 3
        assert versions.which(server, "configured") == 0


@pytest.mark.parametrize("old", [None, 1])
def test_killed_during_a_copy(tmp_path, versions, old):
    """The copy is half done when the daemon dies, and goes on when it lives again."""
    watch = tmp_path / "watch"
    target = watch / "org" / "v.delta.safetensors"
    put(FILES[3], watch / "other.delta.safetensors")
    if old is not None:
        put(FILES[old], target)
    server = start(config(tmp_path), tmp_path)
    before = {"other"} if old is None else {"other", "org/v"}
    settled(server, before)
    if old is not None:
        assert versions.which(server, "org/v") == old
    data = FILES[2].read_bytes()
    target.parent.mkdir(exist_ok=True)
    with open(target, "wb", buffering=0) as copy:
        copy.write(data[:len(data) // 2])
        kill(server)
        with running(config(tmp_path), tmp_path) as server:
            settled(server, {"other"})  # half a file is no variant
            server.wait_for(lambda: "org/v.delta.safetensors' is not taken" in server.log(), what="a warning")
            copy.write(data[len(data) // 2:])
            settled(server, {"other", "org/v"})
            assert [versions.which(server, name) for name in ("org/v", "other", "configured")] == [2, 3, 0]
