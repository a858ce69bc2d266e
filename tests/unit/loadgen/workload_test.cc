// What requests a load consists of: made up, and from traces.
#include "loadgen/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace deltad::loadgen {
namespace {

using ::testing::HasSubstr;

SyntheticOptions options() {
  SyntheticOptions options;
  options.models = {"a", "b", "c"};
  options.prompt_tokens = {10, 12};
  options.max_tokens = {5, 5};
  options.requests = 500;
  options.seed = 9;
  return options;
}

std::vector<PlannedRequest> all(Workload&& workload) {
  std::vector<PlannedRequest> requests;
  while (auto request = workload.next()) requests.push_back(*request);
  return requests;
}

TEST(SyntheticWorkload, MakesAsManyRequestsAsAskedWithinTheRanges) {
  const auto requests = all(SyntheticWorkload(options()));
  ASSERT_EQ(requests.size(), 500u);
  std::set<int64_t> prompts;
  std::set<std::string> models;
  for (const PlannedRequest& r : requests) {
    prompts.insert(r.prompt_tokens);
    models.insert(r.model);
    EXPECT_EQ(r.max_tokens, 5);
    EXPECT_EQ(r.at, 0);
  }
  EXPECT_EQ(prompts, (std::set<int64_t>{10, 11, 12}));
  EXPECT_EQ(models, (std::set<std::string>{"a", "b", "c"}));
}

TEST(SyntheticWorkload, ThePaceDoesNotChangeWhatIsAsked) {
  SyntheticOptions paced = options();
  paced.rate = 50;
  paced.shape = 0.3;
  const auto one = all(SyntheticWorkload(options())), other = all(SyntheticWorkload(paced));
  ASSERT_EQ(one.size(), other.size());
  double last = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].model, other[i].model);
    EXPECT_EQ(one[i].prompt_tokens, other[i].prompt_tokens);
    EXPECT_GE(other[i].at, last);
    last = other[i].at;
  }
  EXPECT_GT(last, 0);
}

TEST(ParseRange, TakesANumberOrARange) {
  EXPECT_EQ(parse_range("--prompt", "128")->low, 128);
  EXPECT_EQ(parse_range("--prompt", "128")->high, 128);
  EXPECT_EQ(parse_range("--prompt", "1:20")->low, 1);
  EXPECT_EQ(parse_range("--prompt", "1:20")->high, 20);
  for (const char* bad : {"", "0", "-1", "x", "5:", ":5", "9:5", "1:2:3", "5 ", "99999999999"}) {
    const Status status = parse_range("--prompt", bad).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("--prompt: \"" + std::string(bad) + "\""));
  }
}

TEST(Trace, IsReadLineByLine) {
  const auto trace =
      parse_trace("t", R"({"at": 0, "model": "a", "prompt_tokens": 7, "max_tokens": 3}

{"at": 1.5, "model": "b/c", "prompt": "Grüße\n", "max_tokens": 1, "user": 4})");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[0].model, "a");
  EXPECT_EQ((*trace)[0].prompt_tokens, 7);
  EXPECT_FALSE((*trace)[0].prompt);
  EXPECT_EQ((*trace)[1].at, 1.5);
  EXPECT_EQ((*trace)[1].model, "b/c");
  EXPECT_EQ((*trace)[1].prompt, "Grüße\n");
  EXPECT_EQ((*trace)[1].max_tokens, 1);
}

TEST(Trace, ErrorsSayTheLine) {
  const std::string good = R"({"at": 2, "model": "a", "prompt_tokens": 7, "max_tokens": 3})";
  const std::pair<const char*, const char*> cases[] = {
      {R"({"at": 2, "model": "a")", "not JSON"},
      {R"([])", "an object was expected"},
      {R"({"model": "a", "prompt_tokens": 7, "max_tokens": 3})", "at is missing"},
      {R"({"at": "2", "model": "a", "prompt_tokens": 7, "max_tokens": 3})", "at is a string"},
      {R"({"at": 1, "model": "a", "prompt_tokens": 7, "max_tokens": 3})", "less than the 2"},
      {R"({"at": 1e300, "model": "a", "prompt_tokens": 7, "max_tokens": 3})", "at most"},
      {R"({"at": 2, "prompt_tokens": 7, "max_tokens": 3})", "model is missing"},
      {R"({"at": 2, "model": "", "prompt_tokens": 7, "max_tokens": 3})", "model is empty"},
      {R"({"at": 2, "model": "a", "prompt_tokens": 0, "max_tokens": 3})", "prompt_tokens is 0"},
      {R"({"at": 2, "model": "a", "prompt_tokens": 7})", "max_tokens is missing"},
      {R"({"at": 2, "model": "a", "prompt_tokens": 7, "max_tokens": 1.5})", "an integer"},
      {R"({"at": 2, "model": "a", "max_tokens": 3})", "either prompt or prompt_tokens"},
      {R"({"at": 2, "model": "a", "prompt": "x", "prompt_tokens": 1, "max_tokens": 3})", "either"},
      {R"({"at": 2, "model": "a", "prompt": "", "max_tokens": 3})", "prompt is empty"},
      {R"({"at": 2, "model": "a", "prompt": 5, "max_tokens": 3})", "prompt is a number"},
  };
  for (const auto& [bad, why] : cases) {
    const Status status = parse_trace("load.jsonl", good + "\n\n" + bad + "\n" + good).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(status.message(), HasSubstr("load.jsonl, line 3: ")) << bad;
    EXPECT_THAT(status.message(), HasSubstr(why)) << bad;
  }
  EXPECT_THAT(parse_trace("t", R"({"at": -1, "model": "a", "prompt_tokens": 7, "max_tokens": 3})")
                  .status()
                  .message(),
              HasSubstr("t, line 1: at is -1"));
  EXPECT_THAT(parse_trace("t", " \n").status().message(), HasSubstr("holds no request"));
}

TEST(Trace, IsReplayedToItsEndOrTheBound) {
  std::vector<PlannedRequest> trace(5);
  for (size_t i = 0; i < trace.size(); ++i) trace[i].at = static_cast<double>(i);
  EXPECT_EQ(all(TraceWorkload(trace, 0)).size(), 5u);
  EXPECT_EQ(all(TraceWorkload(trace, 9)).size(), 5u);
  const auto some = all(TraceWorkload(trace, 2));
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[1].at, 1);
}

}  // namespace
}  // namespace deltad::loadgen
