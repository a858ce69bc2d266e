// The arithmetic of a report.
#include "loadgen/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace deltad::loadgen {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TimePoint at(int ms) { return TimePoint{} + milliseconds(ms); }

// Scheduled at 0, sent at 2 ms.
RequestRecord answered(const std::string& model, int first, int end, int64_t tokens,
                       std::vector<float> gaps = {}) {
  RequestRecord r;
  r.model = model;
  r.scheduled = at(0);
  r.sent = at(2);
  r.streamed = true;
  r.first = at(first);
  r.end = at(end);
  r.prompt_tokens = 7;
  r.completion_tokens = tokens;
  r.gaps = std::move(gaps);
  return r;
}

RequestRecord failed(const std::string& model, Outcome outcome, const std::string& error) {
  RequestRecord r;
  r.model = model;
  r.scheduled = at(0);
  r.sent = at(4);
  r.outcome = outcome;
  r.error = error;
  r.detail = "why " + error;
  return r;
}

TEST(Percentile, InterpolatesBetweenNeighbours) {
  const std::vector<float> values = {1, 2, 3, 4};  // numpy.percentile's values
  EXPECT_DOUBLE_EQ(percentile(values, 0), 1);
  EXPECT_DOUBLE_EQ(percentile(values, 0.5), 2.5);
  EXPECT_NEAR(percentile(values, 0.9), 3.7, 1e-9);
  EXPECT_NEAR(percentile(values, 0.99), 3.97, 1e-9);
  EXPECT_DOUBLE_EQ(percentile(values, 1), 4);
  EXPECT_DOUBLE_EQ(percentile({5}, 0.99), 5);
  EXPECT_DOUBLE_EQ(percentile({}, 0.5), 0);
}

TEST(Percentile, DistributionsSortFirst) {
  std::vector<float> values;
  for (int i = 100; i >= 0; --i) values.push_back(static_cast<float>(i));
  const Distribution d = distribution(values);
  EXPECT_EQ(d.count, 101);
  EXPECT_DOUBLE_EQ(d.mean, 50);
  EXPECT_DOUBLE_EQ(d.p50, 50);
  EXPECT_NEAR(d.p90, 90, 1e-9);
  EXPECT_NEAR(d.p99, 99, 1e-9);
  EXPECT_DOUBLE_EQ(d.max, 100);
  EXPECT_EQ(distribution({}).count, 0);
}

TEST(Summary, LatenciesCountFromTheScheduledTime) {
  Summary summary{Slo{}};
  summary.add(answered("a", 30, 130, 5, {25, 75}));
  summary.add(answered("b", 10, 10, 1));
  const Totals total = summary.total();
  EXPECT_THAT(total.ttft, ElementsAre(30, 10));
  EXPECT_THAT(total.tpot, ElementsAre(25));  // one token has no time per further token
  EXPECT_THAT(total.itl, ElementsAre(25, 75));
  EXPECT_THAT(total.e2e, ElementsAre(130, 10));
  EXPECT_EQ(total.prompt_tokens, 14);
  EXPECT_EQ(total.completion_tokens, 6);
  EXPECT_EQ(summary.models().at("a").completion_tokens, 5);
  EXPECT_DOUBLE_EQ(summary.lateness().p50, 2);
}

TEST(Summary, GoodRequestsKeepEveryLimit) {
  const auto good = [](const char* slo, const RequestRecord& record) {
    Summary summary(*parse_slo(slo));
    summary.add(record);
    return summary.total().good;
  };
  const RequestRecord r = answered("a", 30, 130, 5);
  EXPECT_EQ(good("ttft:30,tpot:25,e2e:130", r), 1);
  EXPECT_EQ(good("ttft:29,tpot:25,e2e:130", r), 0);
  EXPECT_EQ(good("ttft:30,tpot:24.9,e2e:130", r), 0);
  EXPECT_EQ(good("ttft:30,tpot:25,e2e:129", r), 0);
  EXPECT_EQ(good("tpot:1", answered("a", 30, 130, 1)), 1);
  EXPECT_EQ(good("e2e:1000", failed("a", Outcome::kRefused, "429")), 0);
}

TEST(Summary, ErrorsAreCountedByKindAndModelAndAreNoLatencies) {
  Summary summary{Slo{}};
  summary.add(answered("a", 30, 130, 5));
  summary.add(failed("a", Outcome::kRefused, "429"));
  summary.add(failed("a", Outcome::kRefused, "429"));
  EXPECT_EQ(summary.faults(), 0);
  summary.add(failed("b", Outcome::kTimeout, "timeout"));
  summary.add(failed("b", Outcome::kHttpError, "404"));
  EXPECT_EQ(summary.faults(), 2);
  EXPECT_EQ(summary.requests(), 5);
  EXPECT_EQ(summary.completed(), 1);
  const Totals total = summary.total();
  EXPECT_EQ(total.requests, 5);
  EXPECT_EQ(total.completed, 1);
  EXPECT_THAT(total.errors, ElementsAre(Pair("404", 1), Pair("429", 2), Pair("timeout", 1)));
  EXPECT_THAT(summary.models().at("a").errors, ElementsAre(Pair("429", 2)));
  EXPECT_EQ(total.e2e.size(), 1u);
  EXPECT_EQ(summary.details().at("timeout"), "b: why timeout");
  EXPECT_DOUBLE_EQ(summary.lateness().max, 4);
}

TEST(Slo, IsReadOrRefusedByPart) {
  const Slo slo = *parse_slo("e2e:5000,ttft:0.5");
  EXPECT_EQ(slo.ttft, 0.5);
  EXPECT_EQ(slo.e2e, 5000);
  EXPECT_FALSE(slo.tpot);
  for (const char* bad : {"", "ttft", "ttft:", "ttft:x", "ttft:0", "ttft:-1", "ttft:5ms", "itl:5",
                          "ttft:5,", "ttft:5,ttft:6", "ttft:inf"}) {
    EXPECT_THAT(parse_slo(bad).status().message(), HasSubstr("expected ttft:MS")) << bad;
  }
}

}  // namespace
}  // namespace deltad::loadgen
