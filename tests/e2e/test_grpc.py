"""The gRPC services through PyPI's grpcio, with stubs made from proto/ for the test."""
import contextlib
import importlib
import json
import pathlib
import shutil
import sys
import threading

import grpc
import grpc_tools
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from grpc_tools import protoc

from conftest import GOLDEN, ROOT, SLOW, free_port, running, tiny_arguments
from otlp_collector import Collector

PROMPT = [89, 88, 469, 278]


class Api:
    """The stubs, the servers and channels to them."""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    files = [str(p) for p in (ROOT / "proto" / "deltad" / "v1").glob("*.proto")]
    known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
    assert protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{known}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]) == 0
    sys.path.insert(0, str(folder))
    out = Api()
    for name in ("sampling_pb2", "inference_pb2", "inference_pb2_grpc", "admin_pb2", "admin_pb2_grpc"):
        setattr(out, name, importlib.import_module(f"deltad.v1.{name}"))
    return out


@contextlib.contextmanager
def grpc_server(stubs, folder, extra="", ready=True):
    """extra: lines of the config, those of `server` first."""
    port, admin = free_port(), free_port()
    config = folder / "deltad.yaml"
    config.write_text(f"server:\n  grpc:\n    listen: {port}\n    admin_listen: {admin}\n{extra}")
    with running(tiny_arguments("--config", config), folder, ready) as server:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel, grpc.insecure_channel(f"127.0.0.1:{admin}") as admin_channel:
            api = Api()
            api.__dict__.update(vars(stubs))
            api.server, api.channel, api.admin_channel = server, channel, admin_channel
            api.port, api.admin_port = port, admin
            api.stub = stubs.inference_pb2_grpc.InferenceStub(channel)
            api.admin = stubs.admin_pb2_grpc.AdminStub(admin_channel)
            yield api


@pytest.fixture(scope="module")
def api(stubs, tmp_path_factory):
    with grpc_server(stubs, tmp_path_factory.mktemp("grpc")) as made:
        yield made


def prompt(api, ids=None, text=None):
    p = api.inference_pb2.Prompt
    return p(text=text) if text is not None else p(tokens=api.inference_pb2.TokenIds(ids=ids or PROMPT))


def generate(api, model="", stream=False, echo=False, timeout=60, **sampling):
    request = api.inference_pb2.GenerateRequest(model=model, prompts=[prompt(api)], echo=echo,
                                                sampling=api.sampling_pb2.SamplingParams(**sampling))
    return (api.stub.GenerateStream if stream else api.stub.Generate)(request, timeout=timeout * SLOW)


def refused(call):
    """(code, {name of the detail's type: detail})"""
    with pytest.raises(grpc.RpcError) as error:
        call()
    status = rpc_status.from_call(error.value)
    details = {}
    for any_detail in status.details if status else []:
        name = any_detail.type_url.rsplit(".", 1)[1]
        details[name] = getattr(error_details_pb2, name)()
        any_detail.Unpack(details[name])
    return error.value.code(), details


SETTINGS = [
    dict(temperature=0),
    dict(temperature=0.9, seed=7),
    dict(temperature=1.3, seed=-3, top_p=0.8),
    dict(temperature=1.1, seed=11, top_k=5),
    dict(temperature=1.1, seed=12, min_p=0.05),
    dict(temperature=0, repetition_penalty=1.7),
    dict(temperature=0, frequency_penalty=1.5, presence_penalty=0.5),
    dict(temperature=0.8, seed=5, n=3),
    dict(temperature=0, logit_bias={5: 100, 9: -100}),
    dict(temperature=0, stop_token_ids=[278], min_tokens=3),
    dict(temperature=0, ignore_eos=True, min_tokens=4),
    dict(temperature=0, logprobs=3),
    dict(temperature=0, skip_special_tokens=False, include_stop_str_in_output=True),
    dict(temperature=0, priority=3, add_special_tokens=False),
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s))
def test_http_and_grpc_give_the_same_tokens(api, settings):
    settings = dict(settings, max_tokens=12, return_token_ids=True)
    for model in ("", "row"):
        body = dict(settings, model=model or "llama", prompt=PROMPT)
        if "logit_bias" in body:
            body["logit_bias"] = {str(k): v for k, v in body["logit_bias"].items()}
        status, http = api.server.post("/v1/completions", body)
        assert status == 200, http
        answer = generate(api, model, **settings)
        assert answer.model == http["model"]
        assert len(answer.choices) == len(http["choices"])
        for ours, theirs in zip(answer.choices, http["choices"]):
            assert list(ours.token_ids) == theirs["token_ids"]
            assert ours.text == theirs["text"]
            assert api.inference_pb2.FinishReason.Name(ours.finish_reason) == "FINISH_REASON_" + theirs["finish_reason"].upper()
            if "logprobs" in settings:
                assert [t.token for t in ours.logprobs] == theirs["logprobs"]["tokens"]
                assert [t.logprob for t in ours.logprobs] == pytest.approx(theirs["logprobs"]["token_logprobs"], abs=1e-6)
        assert answer.usage.completion_tokens == http["usage"]["completion_tokens"]
        assert answer.usage.prompt_tokens == http["usage"]["prompt_tokens"]


def test_chat_gives_the_same_tokens_as_over_http(api):
    turns = [("system", "Be brief."), ("user", "hello there"), ("assistant", "yes"), ("user", "and now")]
    for extra in ({}, {"continue_final_message": True}, {"add_generation_prompt": False}, {"chat_template_kwargs": {"a": 1, "b": [True, "x"]}}):
        settings = dict(temperature=0.9, seed=4, max_tokens=10, return_token_ids=True)
        status, http = api.server.post("/v1/chat/completions", dict(
            settings, messages=[{"role": r, "content": c} for r, c in turns], **extra))
        assert status == 200, http
        request = api.inference_pb2.ChatRequest(messages=[api.inference_pb2.ChatMessage(role=r, content=c) for r, c in turns],
                                                sampling=api.sampling_pb2.SamplingParams(**settings), **extra)
        answer = api.stub.Chat(request)
        assert list(answer.choices[0].prompt_token_ids) == http["prompt_token_ids"]
        assert list(answer.choices[0].token_ids) == http["choices"][0]["token_ids"]
        assert answer.choices[0].text == http["choices"][0]["message"]["content"]
        deltas = [e.delta for e in api.stub.ChatStream(request) if e.WhichOneof("event") == "delta"]
        assert "".join(d.text for d in deltas) == answer.choices[0].text


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(s))
def test_chats_have_the_same_parameters(api, settings):
    settings = dict(settings, max_tokens=8, return_token_ids=True)
    body = dict(settings, messages=[{"role": "user", "content": "hello"}])
    if "logit_bias" in body:
        body["logit_bias"] = {str(k): v for k, v in body["logit_bias"].items()}
    if "logprobs" in body:
        body.update(logprobs=True, top_logprobs=settings["logprobs"])
    status, http = api.server.post("/v1/chat/completions", body)
    assert status == 200, http
    answer = api.stub.Chat(api.inference_pb2.ChatRequest(messages=[api.inference_pb2.ChatMessage(role="user", content="hello")],
                                                         sampling=api.sampling_pb2.SamplingParams(**settings)))
    assert len(answer.choices) == len(http["choices"])
    for ours, theirs in zip(answer.choices, http["choices"]):
        assert list(ours.token_ids) == theirs["token_ids"] and ours.text == theirs["message"]["content"]
        if "logprobs" in settings:
            ours = [(t.logprob, [top.token for top in t.top_logprobs]) for t in ours.logprobs]
            assert ours == [(pytest.approx(t["logprob"], abs=1e-6), [top["token"] for top in t["top_logprobs"]])
                            for t in theirs["logprobs"]["content"]]


def test_echo(api):
    settings = dict(temperature=0, max_tokens=5, logprobs=2)
    http = api.server.post("/v1/completions", dict(settings, prompt=PROMPT, echo=True))[1]["choices"][0]
    ours = generate(api, echo=True, **settings).choices[0]
    assert ours.text == http["text"]
    assert [t.text_offset for t in ours.logprobs] == http["logprobs"]["text_offset"]
    assert not ours.logprobs[0].HasField("logprob")


def test_every_parameter_is_compared(api):
    compared = {name for settings in SETTINGS for name in settings} | {"max_tokens", "return_token_ids", "stop"}
    assert compared == set(api.sampling_pb2.SamplingParams.DESCRIPTOR.fields_by_name)
    # And beside the sampling, here by name:
    assert set(api.inference_pb2.GenerateRequest.DESCRIPTOR.fields_by_name) == {"model", "prompts", "sampling", "echo"}
    assert set(api.inference_pb2.ChatRequest.DESCRIPTOR.fields_by_name) == {
        "model", "messages", "sampling", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"}


def test_stop_strings(api):
    whole = generate(api, temperature=0, max_tokens=16, ignore_eos=True).choices[0].text
    stop = whole[len(whole) // 2:][:2]
    cut = generate(api, temperature=0, max_tokens=16, ignore_eos=True, stop=[stop]).choices[0]
    assert cut.text == whole[:whole.index(stop)]
    http = api.server.post("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 16, "ignore_eos": True, "stop": [stop]})
    assert http[1]["choices"][0]["text"] == cut.text


def test_a_stream_is_its_whole_answer(api):
    settings = dict(temperature=0.7, seed=3, n=2, max_tokens=20, return_token_ids=True, ignore_eos=True)
    whole = generate(api, **settings)
    events = list(generate(api, stream=True, **settings))
    kinds = [e.WhichOneof("event") for e in events]
    assert kinds[0] == "start" and kinds.count("start") == 1
    assert kinds[-1] == "usage" and kinds.count("end") == 2
    for choice in whole.choices:
        deltas = [e.delta for e in events if e.WhichOneof("event") == "delta" and e.delta.index == choice.index]
        assert "".join(d.text for d in deltas) == choice.text
        assert [i for d in deltas for i in d.token_ids] == list(choice.token_ids)
        assert list(deltas[0].prompt_token_ids) == PROMPT
    assert events[-1].usage == whole.usage


def test_tokenize_detokenize_models(api):
    tokens = api.stub.Tokenize(api.inference_pb2.TokenizeRequest(prompt="hello", return_token_strs=True))
    http = api.server.post("/tokenize", {"prompt": "hello", "return_token_strs": True})[1]
    assert list(tokens.tokens) == http["tokens"] and list(tokens.token_strs) == http["token_strs"]
    text = api.stub.Detokenize(api.inference_pb2.DetokenizeRequest(tokens=tokens.tokens)).prompt
    assert text == api.server.post("/detokenize", {"tokens": http["tokens"]})[1]["prompt"]
    models = api.stub.ListModels(api.inference_pb2.ListModelsRequest()).models
    listed = json.loads(api.server.get("/v1/models")[2])["data"]
    assert [m.id for m in models] == [m["id"] for m in listed]
    assert not models[0].HasField("parent") and models[1].parent == models[0].id


@pytest.mark.parametrize("settings, field", [
    (dict(temperature=3), "sampling.temperature"), (dict(top_p=0), "sampling.top_p"), (dict(n=0), "sampling.n"),
    (dict(max_tokens=-1), "sampling.max_tokens"), (dict(logprobs=21), "sampling.logprobs"),
    (dict(logit_bias={4_000_000: 1}), "sampling.logit_bias"), (dict(stop=[""]), "sampling.stop[0]"),
    (dict(max_tokens=2, min_tokens=3), "sampling.min_tokens"), (dict(max_tokens=10**9), "sampling.max_tokens")])
def test_a_bad_field_is_named(api, settings, field):
    for stream in (False, True):
        code, details = refused(lambda: list(generate(api, stream=True, **settings)) if stream else generate(api, **settings))
        assert code == grpc.StatusCode.INVALID_ARGUMENT
        assert [v.field for v in details["BadRequest"].field_violations] == [field]
        assert details["ErrorInfo"].domain == "deltad"


def test_other_errors(api):
    code, details = refused(lambda: generate(api, model="nobody"))
    assert code == grpc.StatusCode.NOT_FOUND and details["ErrorInfo"].reason == "MODEL_NOT_FOUND"
    code, details = refused(lambda: api.stub.Generate(api.inference_pb2.GenerateRequest()))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and details["BadRequest"].field_violations[0].field == "prompts"
    chat = api.inference_pb2.ChatRequest(messages=[api.inference_pb2.ChatMessage(role="nobody", content="x")])
    code, details = refused(lambda: api.stub.Chat(chat))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and details["BadRequest"].field_violations[0].field == "messages[0].role"
    generate(api, max_tokens=1)  # and it goes on


def test_the_request_id_is_kept_or_made(api):
    request = api.inference_pb2.ListModelsRequest()
    call = api.stub.ListModels.with_call(request, metadata=[("x-request-id", "mine-1")])[1]
    assert ("x-request-id", "mine-1") in [tuple(m) for m in call.initial_metadata()]
    call = api.stub.ListModels.with_call(request)[1]
    assert dict(call.initial_metadata())["x-request-id"].startswith("req-")


def test_health_and_reflection(api):
    for channel, service in ((api.channel, "deltad.v1.Inference"), (api.admin_channel, "deltad.v1.Admin")):
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", service):
            assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest
        services, symbol = reflection.ServerReflectionInfo(iter([ask(list_services=""), ask(file_containing_symbol=service)]))
        listed = {s.name for s in services.list_services_response.service}
        assert {service, "grpc.health.v1.Health"} <= listed
        # Each role on its own listener only.
        assert len({"deltad.v1.Inference", "deltad.v1.Admin"} & listed) == 1
        assert symbol.file_descriptor_response.file_descriptor_proto


def engine_is_idle(api):
    return api.server.metric("vllm:num_requests_running") == 0 and api.server.metric("vllm:num_requests_waiting") == 0


LONG = dict(temperature=0, max_tokens=240, ignore_eos=True)


def test_cancellation_frees_the_request(api):
    stream = generate(api, stream=True, n=16, **LONG)
    next(stream)
    stream.cancel()
    api.server.wait_for(lambda: engine_is_idle(api), what="the cancelled request to end")


def test_a_slow_reader_loses_its_own_stream_only(api):
    slow = generate(api, stream=True, n=128, logprobs=20, **LONG)
    next(slow)  # and no more: what is made waits for it, up to the bound
    generate(api, max_tokens=4, temperature=0)
    api.server.wait_for(lambda: engine_is_idle(api), seconds=60, what="the unread stream to be cut")
    with pytest.raises(grpc.RpcError) as error:
        list(slow)
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    generate(api, max_tokens=4, temperature=0)


def test_a_deadline_ends_the_request(api):
    with pytest.raises(grpc.RpcError) as error:
        list(generate(api, stream=True, n=64, timeout=0.05 / SLOW, **LONG))
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    api.server.wait_for(lambda: engine_is_idle(api), what="the expired request to end")


def test_the_server_s_own_bound_on_time_is_a_deadline(stubs, tmp_path):
    # The client has none: the status comes from the server.
    with grpc_server(stubs, tmp_path, extra="  request_seconds: 0.05\n") as api:
        request = api.inference_pb2.GenerateRequest(prompts=[prompt(api)], sampling=api.sampling_pb2.SamplingParams(n=128, **LONG))
        with pytest.raises(grpc.RpcError) as error:
            api.stub.Generate(request)
        assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        api.server.wait_for(lambda: engine_is_idle(api), what="the expired request to end")


def test_keys(stubs, tmp_path):
    with grpc_server(stubs, tmp_path, extra="  api_keys: [secret]\n  admin: {api_keys: [root]}\n") as api:
        request = api.inference_pb2.ListModelsRequest()
        variants = api.admin_pb2.ListVariantsRequest()
        for call, ask, right, other in ((api.stub.ListModels, request, "secret", "root"), (api.admin.ListVariants, variants, "root", "secret")):
            for metadata, code in (([], "UNAUTHENTICATED"), ([("authorization", "Bearer nobody")], "UNAUTHENTICATED"),
                                   ([("authorization", right)], "UNAUTHENTICATED"), ([("authorization", "Bearer " + other)], "PERMISSION_DENIED")):
                assert refused(lambda m=metadata: call(ask, metadata=m))[0].name == code
            call(ask, metadata=[("authorization", "Bearer " + right)])
        health = health_pb2_grpc.HealthStub(api.channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        assert "secret" not in api.server.log() and "root" not in api.server.log()
        assert 'key=server.api_keys.0' in api.server.log()


def listed(target, credentials):
    """Whether a new connection with these credentials lists models or variants."""
    port, service, call, request = target
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials) if credentials else grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            getattr(service(channel), call)(request, timeout=20 * SLOW)
            return True
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            return False


def test_tls_client_certificates_and_certificates_that_change(stubs, pki, tmp_path):
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(pki / "one.pem", certificate)
    shutil.copy(pki / "one.key", key)
    admin = f"{{certificate: {pki}/one.pem, key: {pki}/one.key, client_ca: {pki}/clients.pem}}"
    extra = f"  tls: {{certificate: server.pem, key: server.key}}\n  admin: {{tls: {admin}}}\n"
    read = lambda name: (pki / name).read_bytes()
    trust = grpc.ssl_channel_credentials
    with grpc_server(stubs, tmp_path, extra=extra, ready=False) as api:
        inference = (api.port, stubs.inference_pb2_grpc.InferenceStub, "ListModels", stubs.inference_pb2.ListModelsRequest())
        admin = (api.admin_port, stubs.admin_pb2_grpc.AdminStub, "ListVariants", stubs.admin_pb2.ListVariantsRequest())
        api.server.wait_for(lambda: listed(inference, trust(read("ca.pem"))), 60, "the model to be served")
        assert not listed(inference, None) and not listed(inference, trust(read("others.pem")))
        assert listed(admin, trust(read("ca.pem"), read("client.key"), read("client.pem")))
        assert not listed(admin, trust(read("ca.pem")))
        assert not listed(admin, trust(read("ca.pem"), read("stranger.key"), read("stranger.pem")))
        with grpc.secure_channel(f"127.0.0.1:{api.port}", trust(read("ca.pem"))) as old:
            models = api.inference_pb2_grpc.InferenceStub(old).ListModels
            models(api.inference_pb2.ListModelsRequest())
            # A broken pair changes nothing.
            shutil.copy(pki / "stranger.pem", certificate)
            api.server.wait_for(lambda: "stay as they were" in api.server.log(), 30)
            assert listed(inference, trust(read("ca.pem")))
            # New connections get the new certificate, which is another authority's; the old one goes on.
            shutil.copy(pki / "stranger.key", key)
            api.server.wait_for(lambda: "certificates read anew" in api.server.log(), 30)
            assert listed(inference, trust(read("others.pem"))) and not listed(inference, trust(read("ca.pem")))
            models(api.inference_pb2.ListModelsRequest())


def test_calls_are_counted_logged_and_traced(stubs, tmp_path):
    trace, caller = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    collector = Collector()
    try:
        tracing = f"tracing: {{endpoint: '{collector.url}', service_name: tested, ratio: 0}}\n"
        with grpc_server(stubs, tmp_path, extra=tracing) as api:
            request = api.inference_pb2.GenerateRequest(model="row", prompts=[prompt(api)],
                                                        sampling=api.sampling_pb2.SamplingParams(max_tokens=5, ignore_eos=True))
            metadata = [("traceparent", f"00-{trace}-{caller}-01"), ("tracestate", "vendor=value"), ("x-request-id", "the-id")]
            api.stub.Generate(request, metadata=metadata)
            assert refused(lambda: generate(api, model="nobody"))[0] == grpc.StatusCode.NOT_FOUND
            count = lambda code: api.server.metric("deltad_requests_total", endpoint="/v1/completions", code=code) or 0
            for ended in range(1, 31):  # until one has not ended before the server hears of the client
                cancelled = generate(api, stream=True, n=16, **LONG)
                next(cancelled)
                cancelled.cancel()
                api.server.wait_for(lambda: count("CANCELLED") + count("OK") == ended + 1, what="the call to be counted")
                if count("CANCELLED") == 1:
                    break
            assert count("CANCELLED") == count("NOT_FOUND") == 1 and count("OK") == ended
            assert api.server.metric("deltad_model_output_tokens_total", model="row") == 5
            [line] = [l for l in api.server.log().splitlines() if "id=the-id" in l]
            assert "status=OK" in line and "variant=row" in line and "output_tokens=5" in line and f"trace_id={trace}" in line
            api.server.wait_for(lambda: len(collector.spans) >= 5, what="the spans' export")
    finally:
        collector.close()
    assert not collector.faults, collector.faults
    spans = {span["name"]: span for span in collector.spans}
    assert set(spans) == {"/v1/completions", "queue", "load", "prefill", "decode"}
    own = spans["/v1/completions"]
    assert own["traceId"] == trace and own["parentSpanId"] == caller and own["traceState"] == "vendor=value"
    assert own["values"]["rpc.grpc.status_code"] == 0 and own["values"]["deltad.request.id"] == "the-id"


def test_health_is_readiness(stubs, tmp_path):
    """Not before the pinned variants are there; the admin service, which can bring them, is."""
    path = GOLDEN / "variants" / "llama" / "llama-row-2.delta.safetensors"
    late = f"variants: {{late: {{path: {tmp_path}/late, pin: true}}}}\nvariant_loading: {{retry_seconds: 0.1}}\n"
    with grpc_server(stubs, tmp_path, extra=late, ready=False) as api:
        def status(channel, service):
            with contextlib.suppress(grpc.RpcError):
                return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service)).status

        answer = health_pb2.HealthCheckResponse
        api.server.wait_for(lambda: status(api.admin_channel, "deltad.v1.Admin") == answer.SERVING, what="the base to be loaded")
        assert status(api.channel, "deltad.v1.Inference") == status(api.channel, "") == answer.NOT_SERVING
        with pytest.raises(grpc.RpcError, match="Pinned variants are being loaded: late") as error:
            generate(api, max_tokens=1)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        api.admin.ReplaceVariant(api.admin_pb2.ReplaceVariantRequest(name="late", path=str(path)))
        api.server.wait_ready()
        api.server.wait_for(lambda: status(api.channel, "deltad.v1.Inference") == answer.SERVING, what="health to follow")
        generate(api, "late", max_tokens=1)


def test_draining(stubs, tmp_path):
    with grpc_server(stubs, tmp_path, extra="  drain_seconds: 30\n") as api:
        health = health_pb2_grpc.HealthStub(api.channel)
        watched = []
        watching = health.Watch(health_pb2.HealthCheckRequest(service="deltad.v1.Inference"))

        def watch():
            with contextlib.suppress(grpc.RpcError):
                for answer in watching:
                    watched.append(answer.status)

        thread = threading.Thread(target=watch)
        thread.start()
        api.server.wait_for(lambda: watched == [health_pb2.HealthCheckResponse.SERVING], what="health to be watched")
        stream = generate(api, stream=True, n=32, **LONG)
        next(stream)
        api.server.process.terminate()
        api.server.wait_for(lambda: watched[-1] == health_pb2.HealthCheckResponse.NOT_SERVING, what="health to flip")
        assert refused(lambda: generate(api, max_tokens=1))[0] == grpc.StatusCode.UNAVAILABLE
        assert [e.WhichOneof("event") for e in stream][-1] == "usage"  # it ends well
        thread.join()
        assert api.server.process.wait(60 * SLOW) == 0


def test_draining_waits_for_admin_calls(stubs, tmp_path):
    """Those that came in time are answered, not cancelled."""
    path = str(GOLDEN / "variants" / "llama" / "llama-row-2.delta.safetensors")
    with grpc_server(stubs, tmp_path, extra="  drain_seconds: 30\n") as api:
        calls = [api.admin.AddVariant.future(api.admin_pb2.AddVariantRequest(name=f"v{i}", path=path)) for i in range(800)]
        calls[0].result()
        api.server.process.terminate()
        # An answer of the service's has details; that of a connection that is closed has none.
        unanswered = [call.details() for call in calls if call.exception() and rpc_status.from_call(call.exception()) is None]
        assert not unanswered
        assert api.server.process.wait(60 * SLOW) == 0


def test_admin(api):
    a = api.admin_pb2
    path = str(GOLDEN / "variants" / "llama" / "llama-row-2.delta.safetensors")
    made = api.admin.AddVariant(a.AddVariantRequest(name="org/new", path=path, rate_limit=a.RateLimit(requests_per_second=50, burst=60)))
    assert made.variant.name == "org/new" and made.variant.rate_limit.burst == 60 and not made.variant.pinned
    assert api.admin.PinVariant(a.PinVariantRequest(name="org/new")).variant.pinned
    api.server.wait_for(lambda: api.admin.GetVariant(a.GetVariantRequest(name="org/new")).variant.state == "resident", what="residency")
    assert generate(api, "org/new", max_tokens=2).model == "org/new"
    assert api.admin.GetCache(a.GetCacheRequest()).device.used_bytes > 0
    assert refused(lambda: api.admin.AddVariant(a.AddVariantRequest(name="org/new", path=path)))[0] == grpc.StatusCode.FAILED_PRECONDITION
    assert refused(lambda: api.admin.EvictVariant(a.EvictVariantRequest(name="org/new")))[0] == grpc.StatusCode.FAILED_PRECONDITION
    code, details = refused(lambda: api.admin.AddVariant(a.AddVariantRequest(name="x", path="relative")))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and details["BadRequest"].field_violations[0].field == "path"
    assert not api.admin.UnpinVariant(a.UnpinVariantRequest(name="org/new")).variant.pinned
    assert not api.admin.SetRateLimit(a.SetRateLimitRequest(name="org/new")).variant.HasField("rate_limit")
    assert api.admin.ReplaceVariant(a.ReplaceVariantRequest(name="org/new", path=path)).variant.path == path
    assert "org/new" in {v.name for v in api.admin.ListVariants(a.ListVariantsRequest()).variants}
    api.admin.RemoveVariant(a.RemoveVariantRequest(name="org/new"))
    assert refused(lambda: api.admin.GetVariant(a.GetVariantRequest(name="org/new")))[0] == grpc.StatusCode.NOT_FOUND
    assert refused(lambda: api.admin.GetPool(a.GetPoolRequest()))[0] == grpc.StatusCode.NOT_FOUND
