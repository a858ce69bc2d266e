#include "engine/check_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/engine/fake_variant.h"

namespace deltad {
namespace {

using ::testing::HasSubstr;

Request good() {
  Request r;
  r.prompt = {1, 2, 3};
  r.on_event = [](const TokenEvent&) {};
  return r;
}

void expect_refused(const Request& request, const std::string& part) {
  const Status status = check_request(request, 100);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << part;
  EXPECT_THAT(status.message(), HasSubstr(part));
}

TEST(CheckRequest, TakesAGoodOne) {
  EXPECT_TRUE(check_request(good(), 4).ok());
  EXPECT_TRUE(check_tokens(good(), 4).ok());
}

TEST(CheckRequest, ThePromptMustFitWithOneTokenMore) {
  Request r = good();
  r.prompt.assign(99, 1);
  EXPECT_TRUE(check_request(r, 100).ok());
  r.prompt.push_back(1);
  expect_refused(r, "100 tokens");
  r.prompt.resize(12345);
  expect_refused(r, "12345");
  r.prompt.clear();
  expect_refused(r, "empty");
}

TEST(CheckRequest, ParametersMustBeInRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const auto with = [](auto change) {
    Request r = good();
    change(r.sampling);
    return r;
  };
  for (const float bad : {-0.1f, nan, inf})
    expect_refused(with([&](SamplingParams& p) { p.temperature = bad; }), "temperature");
  for (const float bad : {0.0f, 1.1f, nan})
    expect_refused(with([&](SamplingParams& p) { p.top_p = bad; }), "top_p");
  for (const float bad : {-0.1f, 1.1f, nan})
    expect_refused(with([&](SamplingParams& p) { p.min_p = bad; }), "min_p");
  expect_refused(with([&](SamplingParams& p) { p.top_k = -1; }), "top_k");
  for (const float bad : {0.0f, -1.0f, nan, inf})
    expect_refused(with([&](SamplingParams& p) { p.repetition_penalty = bad; }), "repetition");
  for (const float bad : {nan, inf}) {
    expect_refused(with([&](SamplingParams& p) { p.frequency_penalty = bad; }), "frequency");
    expect_refused(with([&](SamplingParams& p) { p.presence_penalty = bad; }), "presence");
    expect_refused(with([&](SamplingParams& p) { p.logit_bias = {{1, bad}}; }), "logit_bias");
  }
}

TEST(CheckRequest, CountsMustMakeSense) {
  Request r = good();
  r.max_tokens = -1;
  expect_refused(r, "max_tokens");
  r = good();
  r.min_tokens = 17;
  expect_refused(r, "min_tokens");
  r = good();
  r.logprobs = -2;
  expect_refused(r, "logprobs");
  r = good();
  r.on_event = nullptr;
  expect_refused(r, "on_event");
}

TEST(CheckRequest, TokenIdsAreThoseOfTheVariant) {
  Request r = good();
  r.prompt = {99, 100};
  EXPECT_THAT(check_tokens(r, 100).message(), HasSubstr("token 100, expected 0 to 99"));
  auto larger = std::make_shared<Variant>(*testing::make_variant(1));
  larger->vocab = 104;
  r.variant = larger;
  EXPECT_TRUE(check_tokens(r, 100).ok());
  r.sampling.logit_bias = {{104, 1.0f}};
  EXPECT_THAT(check_tokens(r, 100).message(), HasSubstr("logit_bias"));
  r = good();
  r.prompt = {-1};
  EXPECT_FALSE(check_tokens(r, 100).ok());
  r = good();
  r.variant = std::make_shared<Variant>();
  EXPECT_THAT(check_tokens(r, 100).message(), HasSubstr("weights"));
}

}  // namespace
}  // namespace deltad
