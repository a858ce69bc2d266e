"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP in JSON and holds what it gets to the protocol's letter
(opentelemetry-proto 1.x, trace/v1, in proto3's JSON form with OTLP's exceptions: hexadecimal ids, enums as numbers)."""
import http.server
import json
import re
import threading

FIELDS = {
    "request": {"resourceSpans"},
    "resourceSpans": {"resource", "scopeSpans", "schemaUrl"},
    "resource": {"attributes", "droppedAttributesCount"},
    "scopeSpans": {"scope", "spans", "schemaUrl"},
    "scope": {"name", "version", "attributes", "droppedAttributesCount"},
    "span": {"traceId", "spanId", "traceState", "parentSpanId", "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes",
             "droppedAttributesCount", "events", "droppedEventsCount", "links", "droppedLinksCount", "status"},
    "status": {"message", "code"},
}
INT64 = re.compile(r"-?\d{1,19}")


def only(kind, value):
    assert isinstance(value, dict) and not set(value) - FIELDS[kind], f"{kind}: {value}"
    return value


def check_value(value):
    assert isinstance(value, dict) and len(value) == 1, value
    (kind, content), = value.items()
    if kind == "stringValue":
        assert isinstance(content, str), value
    elif kind == "intValue":  # a 64-bit number is a string
        assert isinstance(content, str) and INT64.fullmatch(content), value
    elif kind == "doubleValue":
        assert isinstance(content, (int, float)), value
    elif kind == "boolValue":
        assert isinstance(content, bool), value
    else:
        assert kind == "arrayValue" and set(content) == {"values"}, value
        for item in content["values"]:
            check_value(item)


def check_attributes(attributes):
    for attribute in attributes:
        assert set(attribute) == {"key", "value"} and attribute["key"], attribute
        check_value(attribute["value"])
    keys = [a["key"] for a in attributes]
    assert len(set(keys)) == len(keys), keys


def plain(value):
    (kind, content), = value.items()
    return int(content) if kind == "intValue" else [plain(v) for v in content["values"]] if kind == "arrayValue" else content


def check_span(span):
    only("span", span)
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and set(span["traceId"]) != {"0"}, span
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and set(span["spanId"]) != {"0"}, span
    assert re.fullmatch("[0-9a-f]{16}", span.get("parentSpanId", "f" * 16)), span
    assert isinstance(span["name"], str) and span["name"], span
    assert isinstance(span["kind"], int) and 1 <= span["kind"] <= 5, span
    assert isinstance(span.get("flags", 0), int), span
    for key in ("startTimeUnixNano", "endTimeUnixNano"):
        assert isinstance(span[key], str) and re.fullmatch(r"\d{19}", span[key]), span
    assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]), span
    check_attributes(span["attributes"])
    status = only("status", span.get("status", {}))
    assert status.get("code", 0) in (0, 1, 2) and (status.get("code") == 2 or "message" not in status), span


def spans_of(request):
    """All spans, each with its attributes as a plain dict under "values"; asserts that they are as the protocol wants them."""
    spans = []
    for resource in only("request", request)["resourceSpans"]:
        only("resourceSpans", resource)
        check_attributes(only("resource", resource["resource"])["attributes"])
        assert any(a["key"] == "service.name" for a in resource["resource"]["attributes"])
        for scope in resource["scopeSpans"]:
            only("scope", only("scopeSpans", scope)["scope"])
            for span in scope["spans"]:
                check_span(span)
                span["values"] = {a["key"]: plain(a["value"]) for a in span["attributes"]}
                spans.append(span)
    return spans


class Collector:
    """Answers 200 unless told otherwise; hold() lets calls wait."""

    def __init__(self):
        self.spans, self.faults, self.calls, self.status = [], [], 0, 200
        self.gate = threading.Event()
        self.gate.set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.calls += 1
                collector.gate.wait(60)
                try:
                    assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                    if collector.status == 200:
                        collector.spans += spans_of(json.loads(body))
                except Exception as fault:  # shown by the test, not to the client
                    collector.faults.append(fault)
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def hold(self):
        self.gate.clear()

    def release(self):
        self.gate.set()

    def close(self):
        self.release()
        self.server.shutdown()
        self.server.server_close()
