"""Traces: a caller's traceparent goes on, spans reach a collector in OTLP's JSON, and a collector that is slow or gone stops nobody."""
import json

import pytest

from conftest import SLOW, TINY, running, tiny_arguments
from otlp_collector import Collector

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY = {"model": "row", "prompt": [5, 6, 7], "max_tokens": 5, "ignore_eos": True}


@pytest.fixture
def collector():
    one = Collector()
    yield one
    one.close()
    assert not one.faults, one.faults


def traced(tmp_path, collector, more=""):
    config = tmp_path / "deltad.yaml"
    config.write_text(f"tracing: {{endpoint: '{collector.url}', service_name: tested{more}}}\n")
    return running(tiny_arguments("--config", config), tmp_path)


def named(collector):
    return {span["name"]: span for span in collector.spans}


def test_the_callers_trace_goes_on(tmp_path, collector):
    with traced(tmp_path, collector, ", ratio: 0") as server:
        headers = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=value", "X-Request-Id": "the-id"}
        assert server.post("/v1/completions", BODY, headers=headers)[0] == 200
        # Not to be kept: the caller says so, or (of those that begin here) the ratio does.
        assert server.post("/v1/completions", BODY, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})[0] == 200
        assert server.post("/v1/completions", BODY)[0] == 200
        server.wait_for(lambda: server.metric("deltad_spans_exported_total") >= 5, what="the spans' export")
    spans = named(collector)
    assert len(collector.spans) == 5 and set(spans) == {"/v1/completions", "queue", "load", "prefill", "decode"}
    own = spans["/v1/completions"]
    assert own["parentSpanId"] == CALLER and own["kind"] == 2
    for span in collector.spans:
        assert span["traceId"] == TRACE and span["traceState"] == "vendor=value"
    assert len({s["spanId"] for s in collector.spans} | {CALLER}) == 6
    values = own["values"]
    assert values["deltad.request.id"] == "the-id" and values["gen_ai.request.model"] == "row"
    assert values["http.response.status_code"] == 200 and values["gen_ai.usage.output_tokens"] == 5
    assert values["gen_ai.usage.input_tokens"] == 3 and values["gen_ai.response.finish_reasons"] == ["length"]
    assert spans["load"]["parentSpanId"] == spans["queue"]["spanId"]
    assert spans["decode"]["endTimeUnixNano"] == own["endTimeUnixNano"]
    assert "Hello" not in json.dumps(collector.spans)


def test_a_failure_is_one_and_a_refusal_is_none(tmp_path, collector):
    with traced(tmp_path, collector) as server:
        assert server.post("/v1/completions", {**BODY, "model": "nobody"})[0] == 404
        server.wait_for(lambda: collector.spans, what="the refused request's span")
        assert collector.spans[0]["status"].get("code", 0) == 0
        assert "model" not in str(collector.spans[0]["values"].get("gen_ai.request.model", ""))


def test_a_slow_collector_costs_spans_and_no_request(tmp_path, collector):
    with traced(tmp_path, collector, ", queue: 16") as server:
        collector.hold()
        assert server.post("/v1/completions", BODY)[0] == 200
        server.wait_for(lambda: collector.calls == 1, what="the first call")
        for _ in range(20):
            assert server.post("/v1/completions", BODY)[0] == 200
        assert server.metric("deltad_spans_dropped_total", reason="queue") > 0
        collector.release()
        server.wait_for(lambda: server.metric("deltad_spans_exported_total") > 0, what="the export to go on")


def test_without_a_collector_spans_are_counted_as_lost_and_the_end_comes_in_time(tmp_path):
    gone = Collector()
    gone.close()
    with traced(tmp_path, gone) as server:
        for _ in range(3):
            assert server.post("/v1/completions", BODY)[0] == 200
        server.wait_for(lambda: server.metric("deltad_spans_dropped_total", reason="collector") > 0, 20, "the lost spans")
        assert server.log().count("spans are lost") == 1
