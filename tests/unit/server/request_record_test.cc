#include "server/observe/request_record.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/observe/observer.h"
#include "server/observe/otlp_json.h"
#include "tests/unit/server/sample.h"

namespace deltad::testing {
namespace {

using Json = nlohmann::json;

double counted(Observer& observer, const std::string& endpoint, const std::string& code) {
  return sample(observer.metrics().render({}),
                "deltad_requests_total{endpoint=\"" + endpoint + "\",code=\"" + code + "\"}");
}

class KeptSpans final : public SpanSink {
 public:
  void add(std::vector<Span> added) override {
    for (Span& span : added) spans.push_back(std::move(span));
  }
  SpanCounts counts() const override { return {}; }

  std::vector<Span> spans;
};

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";

TraceHeaders from_caller(bool sampled) {
  return {"00-" + kTrace + "-" + kSpan + (sampled ? "-01" : "-00"), "vendor=1"};
}

// A sequence that went through everything, a second a phase.
TokenEvent whole_life(TimePoint received) {
  TokenEvent event;
  event.parked = received + std::chrono::seconds(1);
  event.unparked = received + std::chrono::seconds(2);
  event.admitted = received + std::chrono::seconds(3);
  event.first_token = received + std::chrono::seconds(4);
  event.output_tokens = 7;
  return event;
}

TEST(RequestRecord, IsCountedOnceWhateverIsCalledLater) {
  Observer observer;
  {
    const auto record = observer.begin(Route::kChat, "a", {});
    record->end(200);
    record->end(503);
    EXPECT_TRUE(record->ended());
  }
  EXPECT_EQ(counted(observer, "/v1/chat/completions", "200"), 1);
  EXPECT_EQ(counted(observer, "/v1/chat/completions", "503"), -1);
}

TEST(RequestRecord, OneThatNobodyEndsIsAFailure) {
  Observer observer;
  { const auto record = observer.begin(Route::kModels, "a", {}); }
  EXPECT_EQ(counted(observer, "/v1/models", "500"), 1);
}

TEST(RequestRecord, CodesOfBothProtocolsHaveTheirNames) {
  EXPECT_EQ(code_label(404), "404");
  EXPECT_EQ(code_label(0), "OK");
  EXPECT_EQ(code_label(16), "UNAUTHENTICATED");
  EXPECT_EQ(code_label(17), "17");
}

TEST(RequestRecord, ItsSpansAreTheCallersAndCoverWhatItWentThrough) {
  KeptSpans sink;
  Observer observer(&sink, 0);  // the caller's flag says, not the ratio
  const auto record = observer.begin(Route::kChat, "req-1", Clock::real().now(), from_caller(true));
  record->metrics().submitted("math");
  record->sequence_ended("math", whole_life(record->received()), false);
  record->model = "math";
  record->finish = "stop,length";
  record->prompt_tokens = 5;
  record->output_tokens = 7;
  record->end(200);

  ASSERT_EQ(sink.spans.size(), 5u);
  std::map<std::string, Span> by_name;
  for (const Span& span : sink.spans) {
    EXPECT_EQ(hex_of(span.context.trace), kTrace);
    EXPECT_EQ(span.context.state, "vendor=1");
    by_name.emplace(span.name, span);
  }
  const Span& own = by_name.at("/v1/chat/completions");
  EXPECT_EQ(hex_of(own.parent), kSpan);
  EXPECT_FALSE(own.failed);
  for (const char* name : {"queue", "prefill", "decode"})
    EXPECT_EQ(by_name.at(name).parent, own.context.span) << name;
  const Span& load = by_name.at("load");
  EXPECT_EQ(load.parent, by_name.at("queue").context.span);
  EXPECT_NEAR(static_cast<double>(load.end_ns - load.start_ns), 1e9, 1e3);
  EXPECT_NEAR(static_cast<double>(by_name.at("queue").end_ns - own.start_ns), 3e9, 1e3);
  EXPECT_EQ(by_name.at("prefill").start_ns, by_name.at("queue").end_ns);
  EXPECT_EQ(by_name.at("decode").start_ns, by_name.at("prefill").end_ns);
}

TEST(RequestRecord, ATraceThatItsCallerDoesNotKeepHasNoSpans) {
  KeptSpans sink;
  Observer observer(&sink, 1);
  observer.begin(Route::kChat, "a", {}, from_caller(false))->end(200);
  observer.begin(Route::kReady, "a", {}, from_caller(true))->end(200);  // a probe
  EXPECT_TRUE(sink.spans.empty());
  observer.set_ratio(0);
  observer.begin(Route::kChat, "a", {})->end(200);
  EXPECT_TRUE(sink.spans.empty());
  observer.set_ratio(1);
  observer.begin(Route::kChat, "a", {}, {"no traceparent", "vendor=1"})->end(200);
  ASSERT_EQ(sink.spans.size(), 1u);  // it never came to wait for anything
  EXPECT_EQ(sink.spans[0].parent, SpanId{});
  EXPECT_EQ(sink.spans[0].context.state, "");
}

TEST(RequestRecord, OneThatFailsWhileItsVariantLoadsShowsSo) {
  KeptSpans sink;
  Observer observer(&sink, 1);
  const auto record = observer.begin(Route::kChat, "a", Clock::real().now());
  TokenEvent event;
  event.parked = record->received();
  event.unparked = record->received() + std::chrono::seconds(1);
  record->metrics().submitted("math");
  record->sequence_ended("math", event, false);
  record->error = "variant 'math' cannot be loaded";
  record->end(503);
  ASSERT_EQ(sink.spans.size(), 3u);
  EXPECT_TRUE(sink.spans[0].failed);
  EXPECT_EQ(sink.spans[1].name, "queue");
  EXPECT_EQ(sink.spans[2].name, "load");
}

TEST(OtlpJson, IdsAreHexAndNumbersAreStrings) {
  Span span;
  span.context = *TraceContext::parse(from_caller(true));
  span.parent = random_span_id();
  span.name = "n\xff";
  span.kind = Span::Kind::kServer;
  span.start_ns = 1'700'000'000'000'000'001;
  span.end_ns = span.start_ns + 1;
  span.attributes = {{"text", "t"},
                     {"number", int64_t{9'007'199'254'740'993}},
                     {"real", 0.5},
                     {"list", std::vector<std::string>{"a", "b"}}};
  span.failed = true;
  span.message = "why";
  const Json json = Json::parse(otlp_json({span}, "svc"));
  const Json& resource = json.at("resourceSpans").at(0);
  EXPECT_EQ(resource.at("resource").at("attributes").at(0),
            Json::parse(R"({"key":"service.name","value":{"stringValue":"svc"}})"));
  const Json& out = resource.at("scopeSpans").at(0).at("spans").at(0);
  EXPECT_EQ(out.at("traceId"), kTrace);
  EXPECT_EQ(out.at("spanId"), kSpan);
  EXPECT_EQ(out.at("parentSpanId"), hex_of(span.parent));
  EXPECT_EQ(out.at("traceState"), "vendor=1");
  EXPECT_EQ(out.at("name"), "n\xef\xbf\xbd");
  EXPECT_EQ(out.at("kind"), 2);
  EXPECT_EQ(out.at("startTimeUnixNano"), "1700000000000000001");
  EXPECT_EQ(out.at("status"), Json::parse(R"({"code":2,"message":"why"})"));
  EXPECT_EQ(out.at("attributes"), Json::parse(R"([
    {"key":"text","value":{"stringValue":"t"}},
    {"key":"number","value":{"intValue":"9007199254740993"}},
    {"key":"real","value":{"doubleValue":0.5}},
    {"key":"list","value":{"arrayValue":{"values":[{"stringValue":"a"},{"stringValue":"b"}]}}}])"));
}

}  // namespace
}  // namespace deltad::testing
