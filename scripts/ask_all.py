"""Asks the base and every variant one question of each variant's kind, all at once, and prints the answers side by side.

ask_all.py URL PID: URL of a running deltad, PID of its process. Exit code 1 if any request failed.
"""
import concurrent.futures
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

import openai

QUESTIONS = pathlib.Path(__file__).parent.parent / "examples" / "variants"
MIB = 1 << 20


def wait_until_ready(url: str, pid: int, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url + "/ready", timeout=5):
                return
        except urllib.error.HTTPError:
            pass  # it answers, but is still loading
        except OSError:
            if not pathlib.Path(f"/proc/{pid}").exists():
                sys.exit("deltad has ended before it was ready")
        time.sleep(0.1)
    sys.exit(f"deltad was not ready within {seconds:.0f} s")


def ask(client: openai.OpenAI, model: str, question: str) -> dict:
    """One streamed answer, with time to first token and tokens a second after it."""
    start = time.monotonic()
    first, text, tokens = None, "", 0
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=64,
        stream=True, stream_options={"include_usage": True})
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            first = first or time.monotonic()
            text += chunk.choices[0].delta.content
        if chunk.usage:
            tokens = chunk.usage.completion_tokens
    end = time.monotonic()
    first = first or end
    rate = (tokens - 1) / (end - first) if tokens > 1 and end > first else 0.0
    return {"text": text, "ttft": first - start, "rate": rate}


def metric(url: str, name: str) -> list[tuple[str, float]]:
    """(labels, value) of every sample of a metric."""
    with urllib.request.urlopen(url + "/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    samples = []
    for line in lines:
        if line.startswith(name + "{") or line.startswith(name + " "):
            key, value = line.rsplit(" ", 1)
            samples.append((key[len(name):], float(value)))
    return samples


def resident_bytes(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def short(text: str, width: int) -> str:
    text = " ⏎ ".join(text.strip().splitlines())
    return text if len(text) <= width else text[:width - 1] + "…"


def main() -> int:
    url, pid = sys.argv[1], int(sys.argv[2])
    print("Waiting for the model to load", flush=True)
    wait_until_ready(url, pid)
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    base = next(m.id for m in client.models.list() if not getattr(m, "parent", None))
    names = sorted(p.name for p in QUESTIONS.iterdir() if (p / "questions.jsonl").exists())
    first = {n: json.loads((QUESTIONS / n / "questions.jsonl").open().readline()) for n in names}

    jobs = [(model, n) for n in names for model in (base, n)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        futures = {job: pool.submit(ask, client, job[0], first[job[1]]["prompt"]) for job in jobs}
    answers = {}
    for (model, name), future in futures.items():
        error = future.exception()
        if error:
            failed += 1
            print(f"FAILED: {model} asked a question of {name}: {error}")
        answers[model, name] = future.result() if not error else {"text": "(failed)", "ttft": 0, "rate": 0}

    right = 0
    for name in names:
        from_base, own = answers[base, name], answers[name, name]
        correct = own["text"] == first[name]["answer"]
        right += correct
        print(f"\n{name}: {short(first[name]['prompt'], 90)}")
        for who, answer in ((base, from_base), (name, own)):
            mark = " ✓" if who == name and correct else ""
            print(f"  {who:<10} first token {answer['ttft'] * 1e3:5.0f} ms, then {answer['rate']:5.1f} tok/s | "
                  f"{short(answer['text'], 78)}{mark}")
    print(f"\n{len(jobs)} requests at once, {failed} failed; {right} of {len(names)} variants answered as expected.")

    weights = sum(v for _, v in metric(url, "deltad_base_bytes"))
    deltas = sum(v for _, v in metric(url, "deltad_variant_resident_bytes"))
    resident = resident_bytes(pid)
    copies = weights * len(names)
    if weights and deltas:
        print(f"Resident: {resident / MIB:.0f} MiB in all: the base {weights / MIB:.0f} MiB, {len(names)} variants "
              f"{deltas / MIB:.0f} MiB. Fourteen full copies would take {copies / MIB:.0f} MiB.")
    body = {"model": "pirate", "messages": [{"role": "user", "content": "Hello, my friend Ana."}], "temperature": 0}
    print(f"\nTry: curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{json.dumps(body)}'")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
