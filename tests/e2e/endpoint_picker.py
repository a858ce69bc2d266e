"""Chooses a replica as the Gateway API inference extension's endpoint picker does, from nothing but what each shows on /metrics.

Replicas with a long queue or a full KV cache are passed over while there are others. Of the rest the one with the highest score is
taken: affinity to the adapter, shortness of its queue and free room in its KV cache, each from 0 to 1.
"""
import dataclasses
import re

SATURATED_QUEUE, SATURATED_KV = 5, 0.8  # the picker's defaults: more than these is too much


@dataclasses.dataclass
class Figures:
    """What the picker knows of a replica."""
    waiting: float
    kv_usage: float
    most_adapters: int
    loaded: set[str]
    coming: set[str]

    @classmethod
    def read(cls, page: str) -> "Figures":
        def value(name):
            [found] = re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.M)
            return float(found)

        # Of several series the picker takes the newest; deltad shows one.
        [labels] = re.findall(r"^vllm:lora_requests_info\{(.*)\} ", page, re.M)
        info = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        names = lambda text: {name.strip() for name in text.split(",") if name.strip()}  # noqa: E731
        return cls(value("vllm:num_requests_waiting"), value("vllm:kv_cache_usage_perc"), int(info["max_lora"]),
                   names(info["running_lora_adapters"]), names(info["waiting_lora_adapters"]))

    def saturated(self) -> bool:
        return self.waiting > SATURATED_QUEUE or self.kv_usage > SATURATED_KV

    def affinity(self, model: str) -> float:
        if model in self.loaded:
            return 1
        if len(self.loaded | self.coming) < self.most_adapters:
            return 0.8  # there is room for it
        return 0.6 if model in self.coming else 0


def pick(model: str, pages: list[str]) -> int:
    """The index of the replica that a request for this model goes to."""
    replicas = [Figures.read(page) for page in pages]
    able = [i for i, r in enumerate(replicas) if not r.saturated()] or list(range(len(replicas)))
    queues = [replicas[i].waiting for i in able]
    spread = max(queues) - min(queues)

    def score(i: int) -> float:
        queue = (max(queues) - replicas[i].waiting) / spread if spread else 1
        return replicas[i].affinity(model) + queue + (1 - replicas[i].kv_usage)
    return max(able, key=score)
