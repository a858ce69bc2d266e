#include "server/metrics.h"

#include <string>

#include "tests/unit/server/api_fixture.h"
#include "tests/unit/server/sample.h"

namespace deltad::testing {
namespace {

TEST(PrometheusText, HistogramsAreCumulative) {
  Histogram histogram({0.1, 1});
  for (const double value : {0.05, 0.1, 0.5, 7.0}) histogram.observe(value);
  PrometheusText text;
  text.family("x_seconds", "histogram", "Help.");
  text.histogram({{"a", "b\"\\\nc"}}, histogram);
  EXPECT_EQ(text.text(),
            "# HELP x_seconds Help.\n# TYPE x_seconds histogram\n"
            "x_seconds_bucket{a=\"b\\\"\\\\\\nc\",le=\"0.1\"} 2\n"
            "x_seconds_bucket{a=\"b\\\"\\\\\\nc\",le=\"1\"} 3\n"
            "x_seconds_bucket{a=\"b\\\"\\\\\\nc\",le=\"+Inf\"} 4\n"
            "x_seconds_sum{a=\"b\\\"\\\\\\nc\"} 7.65\n"
            "x_seconds_count{a=\"b\\\"\\\\\\nc\"} 4\n");
}

class MetricsTest : public ApiTest {
 protected:
  std::string page() { return ask("GET", "/metrics")->response.body; }
};

TEST_F(MetricsTest, RequestsAndTokens) {
  const auto answer = chat(R"("model":"math","stream":true)");
  give(answer, 0, "abc", FinishReason::kStop, 4);
  chat(R"("temperature":9)");
  ask("GET", "/some/unknown/path");
  ask("GET", "/other");
  const std::string text = page();
  EXPECT_EQ(sample(text, R"(deltad_requests_total{endpoint="/v1/chat/completions",code="200"})"),
            1);
  EXPECT_EQ(sample(text, R"(deltad_requests_total{endpoint="/v1/chat/completions",code="400"})"),
            1);
  EXPECT_EQ(sample(text, R"(deltad_requests_total{endpoint="other",code="404"})"), 2);
  EXPECT_EQ(sample(text, "deltad_prompt_tokens_total"), 20);
  EXPECT_EQ(sample(text, "deltad_cached_tokens_total"), 4);
  EXPECT_EQ(sample(text, R"(deltad_model_requests_total{model="math"})"), 1);
  EXPECT_EQ(sample(text, R"(deltad_model_requests_total{model="base"})"), 0);
  EXPECT_EQ(sample(text, R"(deltad_http_path_seconds_count{part="submit"})"), 1);
  EXPECT_EQ(sample(text, R"(deltad_http_path_seconds_count{part="write"})"), 3);
  EXPECT_EQ(sample(text, "deltad_queue_seconds_count"), 1);
  EXPECT_EQ(sample(text, "deltad_request_seconds_count"), 1);
}

TEST_F(MetricsTest, EngineVariantsAndTheGatewaysNames) {
  const std::string text = page();
  EXPECT_EQ(sample(text, "deltad_ready"), 1);
  EXPECT_EQ(sample(text, "deltad_step_rows"), 14);
  EXPECT_EQ(sample(text, "deltad_kv_blocks_used"), 25);
  EXPECT_EQ(sample(text, R"(vllm:num_requests_running{model_name="base"})"), 3);
  EXPECT_EQ(sample(text, R"(vllm:num_requests_waiting{model_name="base"})"), 2 + 5);
  EXPECT_EQ(sample(text, R"(deltad_waiting{reason="load"})"), 5);
  EXPECT_EQ(sample(text, R"(deltad_waiting{reason="place"})"), 2);
  EXPECT_EQ(sample(text, R"(vllm:kv_cache_usage_perc{model_name="base"})"), 0.25);
  EXPECT_EQ(sample(text, R"(vllm:cache_config_info{block_size="16",num_gpu_blocks="100"})"), 1);
  EXPECT_EQ(sample(text, R"(deltad_variant_residency{variant="math",place="device"})"), 1);
  EXPECT_EQ(sample(text, R"(deltad_variant_residency{variant="org/poet",place="disk"})"), 1);
  EXPECT_EQ(sample(text, R"(deltad_variant_resident_bytes{variant="math"})"), 1000);
  EXPECT_EQ(sample(text, R"(deltad_variant_loads_total{variant="math"})"), 1);
  EXPECT_EQ(sample(text, R"(deltad_variant_load_seconds{variant="math"})"), 0.25);
}

TEST_F(MetricsTest, VariantsInMemoryAndWaitedFor) {
  const auto info = [this] {
    const std::string text = page();
    const size_t at = text.find("\nvllm:lora_requests_info{") + 1;
    return text.substr(at, text.find("}", at) - at);
  };
  // math is in memory, org/poet on the disk.
  EXPECT_EQ(info(), R"(vllm:lora_requests_info{max_lora="2",running_lora_adapters="math",)"
                    R"(waiting_lora_adapters="")");
  chat(R"("model":"math")");
  const auto poet = chat(R"("model":"org/poet")");
  chat(R"("model":"base")");
  EXPECT_EQ(info(), R"(vllm:lora_requests_info{max_lora="2",running_lora_adapters="math",)"
                    R"(waiting_lora_adapters="org/poet")");
  router_.token(1, 'a');
  poet->pump();
  EXPECT_EQ(info(), R"(vllm:lora_requests_info{max_lora="2",running_lora_adapters="math,org/poet",)"
                    R"(waiting_lora_adapters="")");
  give(poet, 1, "");
  EXPECT_EQ(info(), R"(vllm:lora_requests_info{max_lora="2",running_lora_adapters="math",)"
                    R"(waiting_lora_adapters="")");
}

TEST_F(MetricsTest, ModelsAreBoundedAndTheRestIsOneRow) {
  ServerMetrics metrics;
  constexpr int kMore = 30;
  for (int i = 0; i < static_cast<int>(kMostVariantSeries) + kMore; ++i) {
    GenerationFigures figures;
    figures.variant = "v" + std::to_string(i);
    figures.output_tokens = 2;
    metrics.submitted(figures.variant);
    metrics.started(figures.variant);
    if (i != 3) metrics.ended(figures, true);
  }
  EXPECT_EQ(metrics.variants().size(), kMostVariantSeries);
  MetricsSnapshot snapshot;
  snapshot.loaded = true;
  snapshot.base_name = "base";
  const std::string text = metrics.render(snapshot);
  EXPECT_EQ(sample(text, R"(deltad_model_output_tokens_total{model="v129"})"), 2);
  EXPECT_EQ(sample(text, R"(deltad_model_output_tokens_total{model="v0"})"), -1);
  EXPECT_EQ(sample(text, R"(deltad_model_output_tokens_total{model="other variants"})"),
            2 * (kMore - 1));
  EXPECT_EQ(sample(text, R"(deltad_model_running{model="other variants"})"), 1);
  EXPECT_EQ(sample(text, "deltad_output_tokens_total"),
            2 * (static_cast<int>(kMostVariantSeries) + kMore - 1));
  EXPECT_NE(text.find(R"(running_lora_adapters="v3")"), std::string::npos);
}

TEST_F(MetricsTest, ARemovedVariantHasNoRow) {
  const std::string row = R"(deltad_model_requests_total{model="gone"})";
  observer_.metrics().submitted("gone");
  GenerationFigures figures;
  figures.variant = "gone";
  observer_.metrics().ended(figures, false);
  const std::string text = page();
  EXPECT_EQ(sample(text, row), -1);
  EXPECT_EQ(sample(text, R"(deltad_model_requests_total{model="other variants"})"), 1);
}

TEST_F(MetricsTest, DeparturesAreCounted) {
  const auto answer = chat("");
  answer->leave();
  router_.finish(0, FinishReason::kCancelled);
  answer->pump();
  const std::string text = page();
  EXPECT_EQ(sample(text, R"(deltad_requests_total{endpoint="/v1/chat/completions",code="499"})"),
            1);
  EXPECT_EQ(sample(text, R"(deltad_model_waiting{model="base"})"), 0);
}

TEST_F(MetricsTest, BeforeTheModelIsThere) {
  const std::string text = observer_.metrics().render({});
  EXPECT_EQ(sample(text, "deltad_ready"), 0);
  EXPECT_EQ(sample(text, R"(deltad_build_info{version="0.1.0"})"), 1);
  EXPECT_EQ(text.find("vllm:"), std::string::npos);
}

// Who drains still shows what runs.
TEST_F(MetricsTest, WhileItDrains) {
  api_.readiness().close("The server is shutting down.");
  observer_.metrics().set_draining();
  const std::string text = page();
  EXPECT_EQ(sample(text, "deltad_ready"), 0);
  EXPECT_EQ(sample(text, "deltad_draining"), 1);
  EXPECT_EQ(sample(text, "deltad_sequences_running"), 3);
}

TEST_F(MetricsTest, GapsAndNamesThatAreNoModels) {
  const auto answer = chat(R"("model":"math","stream":true)");
  give(answer, 0, "abcd", FinishReason::kStop);
  chat(R"("model":"a-name-of-its-own")");
  chat(R"("model":"somebody else")");
  const std::string text = page();
  EXPECT_EQ(sample(text, "deltad_inter_token_seconds_count"), 3);
  EXPECT_EQ(sample(text, R"(deltad_model_requests_total{model="unknown model"})"), 2);
  EXPECT_EQ(text.find("a-name-of-its-own"), std::string::npos);
}

TEST(ServerMetrics, AStallIsCountedWhenItBegins) {
  ServerMetrics metrics;
  for (const bool stalled : {true, true, false, true}) metrics.set_stalled(stalled);
  EXPECT_EQ(metrics.operation().stalls, 2u);
}

}  // namespace
}  // namespace deltad::testing
