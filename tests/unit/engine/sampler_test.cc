#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "engine/philox.h"

namespace deltad {
namespace {

std::vector<float> random_row(int64_t n, uint32_t seed, float spread = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

struct Draw {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<int32_t> barred;
  const TokenCounts* counts = nullptr;
  int32_t top = -1;

  Sampled at(uint64_t position, int32_t choice = 0) const {
    std::vector<float> row = logits;  // sample() changes it
    SampleInput input;
    input.logits = row.data();
    input.vocab = static_cast<int64_t>(row.size());
    input.params = &params;
    input.counts = counts;
    input.barred = barred;
    input.choice = choice;
    input.position = position;
    input.top = top;
    return sample(input);
  }
  // How often each token comes in many draws.
  std::map<int32_t, double> shares(int draws = 20000) const {
    std::map<int32_t, double> out;
    for (int i = 0; i < draws; ++i) out[at(static_cast<uint64_t>(i)).token] += 1.0 / draws;
    return out;
  }
};

std::vector<double> softmax(const std::vector<float>& x, double temperature = 1) {
  double max = -1e30, sum = 0;
  for (const float v : x) max = std::max(max, static_cast<double>(v));
  std::vector<double> p;
  for (const float v : x) p.push_back(std::exp((v - max) / temperature));
  for (const double v : p) sum += v;
  for (double& v : p) v /= sum;
  return p;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowestOfEquals) {
  Draw draw{{1, 5, 2, 5, 0}, {}, {}};
  draw.params.temperature = 0;
  EXPECT_EQ(draw.at(0).token, 1);
}

TEST(Sampler, DrawsInProportion) {
  Draw draw{{0, 1, 2, 0.5, -1}, {}, {}};
  draw.params.temperature = 0.8f;
  const std::vector<double> p = softmax(draw.logits, 0.8);
  for (const auto& [token, share] : draw.shares())
    EXPECT_NEAR(share, p[static_cast<size_t>(token)], 0.01) << token;
}

TEST(Sampler, DrawsInProportionOverAWideVocabulary) {
  Draw draw{random_row(5000, 1, 1), {}, {}};
  const std::vector<double> p = softmax(draw.logits);
  // By tenths of the vocabulary: single tokens come too seldom.
  std::vector<double> expected(10, 0), got(10, 0);
  for (size_t i = 0; i < p.size(); ++i) expected[i / 500] += p[i];
  for (const auto& [token, share] : draw.shares(10000))
    got[static_cast<size_t>(token) / 500] += share;
  for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(got[i], expected[i], 0.02) << i;
}

TEST(Sampler, SeedChoiceAndPositionDecide) {
  Draw draw{random_row(300, 2), {}, {}};
  draw.params.seed = 9;
  int changes = 0;
  for (uint64_t position = 0; position < 50; ++position) {
    const int32_t token = draw.at(position).token;
    EXPECT_EQ(draw.at(position).token, token);
    changes += draw.at(position, 1).token != token;
    Draw other = draw;
    other.params.seed = 10;
    changes += other.at(position).token != token;
  }
  EXPECT_GT(changes, 50);
}

TEST(Sampler, TopKKeepsTheKMostLikely) {
  Draw draw{{3, 1, 2.9f, 0, 2.8f}, {}, {}};
  draw.params.top_k = 3;
  const auto shares = draw.shares();
  ASSERT_EQ(shares.size(), 3u);
  const double sum = std::exp(3.0) + std::exp(2.9) + std::exp(2.8);
  EXPECT_NEAR(shares.at(0), std::exp(3.0) / sum, 0.01);
  EXPECT_NEAR(shares.at(2), std::exp(2.9) / sum, 0.01);
  EXPECT_NEAR(shares.at(4), std::exp(2.8) / sum, 0.01);
  draw.params.top_k = 1;
  EXPECT_EQ(draw.shares(100).begin()->first, 0);
}

// The smallest set of the most likely tokens whose share reaches top_p, by brute force.
std::vector<int32_t> nucleus(const std::vector<float>& logits, double top_p, double temperature) {
  const std::vector<double> p = softmax(logits, temperature);
  std::vector<int32_t> order(p.size());
  for (size_t i = 0; i < p.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(-p[static_cast<size_t>(a)], a) < std::pair(-p[static_cast<size_t>(b)], b);
  });
  double sum = 0;
  size_t kept = 0;
  while (kept < order.size() && sum < top_p) sum += p[static_cast<size_t>(order[kept++])];
  order.resize(kept);
  return order;
}

TEST(Sampler, TopPKeepsTheSmallestSetThatHoldsTheShare) {
  // Peaked: few tokens hold the share. Flat: thousands do.
  for (const float spread : {4.0f, 0.5f}) {
    Draw draw{random_row(1500, 4, spread), {}, {}};
    draw.params.top_p = 0.7f;
    draw.params.temperature = 0.9f;
    const std::vector<int32_t> kept = nucleus(draw.logits, 0.7f, 0.9);
    std::vector<double> p = softmax(draw.logits, 0.9);
    double inside = 0;
    for (const int32_t id : kept) inside += p[static_cast<size_t>(id)];
    const auto shares = draw.shares(8000);
    for (const auto& [token, share] : shares)
      EXPECT_NE(std::find(kept.begin(), kept.end(), token), kept.end()) << token;
    for (size_t i = 0; i < std::min<size_t>(kept.size(), 5); ++i) {
      const double expected = p[static_cast<size_t>(kept[i])] / inside;
      const auto at = shares.find(kept[i]);
      EXPECT_NEAR(at == shares.end() ? 0 : at->second, expected, 0.025);
    }
  }
}

TEST(Sampler, TopPIsOfWhatTopKLeft) {
  Draw draw{{2, 1.9f, 1.8f, 1.7f, 1.6f, 1.5f}, {}, {}};
  draw.params.top_k = 3;
  draw.params.top_p = 0.6f;  // of three nearly equal ones: two
  const auto shares = draw.shares(2000);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares.count(0) + shares.count(1), 2u);
}

// As a device does, so that a seed means the same token there.
TEST(Sampler, RunsThroughWhatIsLeftById) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 31) / 8;
  const auto ascend = [&](const SamplingParams& params) {
    const Draw draw{logits, params, {}};
    std::vector<std::pair<double, int32_t>> drawn;
    for (uint64_t i = 0; i < 300; ++i)
      drawn.push_back({philox_uniform(params.seed, 0, i), draw.at(i).token});
    std::sort(drawn.begin(), drawn.end());
    return std::is_sorted(drawn.begin(), drawn.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  };
  SamplingParams plain, top_k, top_p, min_p;
  top_k.top_k = 50;
  top_p.top_p = 0.7f;
  min_p.min_p = 0.3f;
  for (const SamplingParams& params : {plain, top_k, top_p, min_p}) EXPECT_TRUE(ascend(params));
}

TEST(Sampler, MinPDropsWhatIsFarBelowTheBest) {
  Draw draw{{0, std::log(0.5f), std::log(0.21f), std::log(0.19f), -9}, {}, {}};
  draw.params.min_p = 0.2f;
  EXPECT_EQ(draw.shares(5000).size(), 3u);
  draw.params.top_k = 2;
  EXPECT_EQ(draw.shares(2000).size(), 2u);
  draw.params.top_k = 0;
  draw.params.min_p = 1;
  EXPECT_EQ(draw.shares(500).size(), 1u);
}

TEST(Sampler, ExtremeTemperaturesAreSafe) {
  Draw draw{random_row(1000, 6), {}, {}};
  const int32_t best = [&] {
    Draw greedy = draw;
    greedy.params.temperature = 0;
    return greedy.at(0).token;
  }();
  for (const float t : {1e-40f, 1e-6f, 1e-4f}) {
    draw.params.temperature = t;
    EXPECT_EQ(draw.at(1).token, best) << t;
  }
  draw.params.temperature = 1e30f;  // nearly uniform
  EXPECT_GT(draw.shares(1000).size(), 400u);
  draw.params.top_p = 0.5f;
  const size_t kept = draw.shares(1000).size();
  EXPECT_GT(kept, 300u);
  EXPECT_LE(kept, 501u);
}

TEST(Sampler, BiasMovesAndBars) {
  Draw draw{{1, 2, 3}, {}, {}};
  draw.params.temperature = 0;
  draw.params.logit_bias = {{0, 5.0f}};
  EXPECT_EQ(draw.at(0).token, 0);
  draw.params.logit_bias = {{2, -100.0f}, {1, -100.0f}};
  EXPECT_EQ(draw.at(0).token, 0);
  draw.params.temperature = 1;
  EXPECT_EQ(draw.shares(500).size(), 1u);
}

TEST(Sampler, BarredTokensNeverCome) {
  Draw draw{{1, 2, 3}, {}, {2, 77, -1}};
  draw.params.temperature = 0;
  EXPECT_EQ(draw.at(0).token, 1);
  draw.params.temperature = 5;
  EXPECT_EQ(draw.shares(2000).count(2), 0u);
  draw.barred = {0, 1, 2};
  EXPECT_EQ(draw.at(0).status.code(), Code::kInternal);
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  TokenCounts counts;
  counts.add_prompt(0);
  counts.add_prompt(1);
  counts.add_output(1);
  counts.add_output(1);
  counts.add_output(2);
  Draw draw{{4, 4, -1, 3.5f}, {}, {}};
  draw.counts = &counts;
  draw.params.temperature = 0;
  draw.params.repetition_penalty = 2;  // 2, 2, −2, 3.5
  EXPECT_EQ(draw.at(0).token, 3);
  draw.params.repetition_penalty = 1;
  draw.params.frequency_penalty = 0.2f;  // the output only: 4, 3.6, −1.2, 3.5
  draw.logits = {3.55f, 4, -1, 3.5f};
  EXPECT_EQ(draw.at(0).token, 1);
  draw.params.frequency_penalty = 0.24f;  // 3.55, 3.52
  EXPECT_EQ(draw.at(0).token, 0);
  draw.params.frequency_penalty = 0;
  draw.params.presence_penalty = 0.4f;  // once, however often
  EXPECT_EQ(draw.at(0).token, 1);
  draw.params.presence_penalty = 0.46f;
  EXPECT_EQ(draw.at(0).token, 0);
  draw.params.presence_penalty = -6;  // a negative one attracts
  draw.logits = {9, 0, 3.5f, 9};
  EXPECT_EQ(draw.at(0).token, 2);
}

TEST(Sampler, LogprobsAreThoseOfTheUnchangedLogits) {
  Draw draw{random_row(500, 8), {}, {}};
  draw.params.temperature = 0.5f;
  draw.params.top_k = 20;
  draw.params.logit_bias = {{7, 30.0f}};
  draw.top = 5;
  const std::vector<double> p = softmax(draw.logits);
  const std::vector<int32_t> order = nucleus(draw.logits, 1.0, 1.0);
  const Sampled sampled = draw.at(3);
  EXPECT_EQ(sampled.token, 7);
  EXPECT_NEAR(sampled.scored.logprob, std::log(p[7]), 1e-5);
  ASSERT_EQ(sampled.scored.top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(sampled.scored.top[i].id, order[i]);
    EXPECT_NEAR(sampled.scored.top[i].logprob, std::log(p[static_cast<size_t>(order[i])]), 1e-5);
  }
}

TEST(Sampler, LogprobsAreNeverPositive) {
  Draw draw{std::vector<float>(100, -50.0f), {}, {}};
  draw.logits[3] = 60;
  draw.params.temperature = 0;
  draw.top = 100;
  const Sampled sampled = draw.at(0);
  EXPECT_LE(sampled.scored.logprob, 0);
  for (const TokenLogprob& entry : sampled.scored.top) {
    EXPECT_LE(entry.logprob, 0);
    EXPECT_TRUE(std::isfinite(entry.logprob));
  }
}

TEST(Sampler, ScoresAGivenToken) {
  const std::vector<float> logits = random_row(700, 9);
  const std::vector<double> p = softmax(logits);
  const Result<Scored> scored = score(logits.data(), 700, 123, 2);
  ASSERT_TRUE(scored.ok());
  EXPECT_NEAR(scored->logprob, std::log(p[123]), 1e-5);
  EXPECT_EQ(scored->top.size(), 2u);
}

TEST(Sampler, LogitsThatAreNoNumbersAreAnError) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Draw draw{random_row(100, 10), {}, {}};
    draw.logits[42] = bad;
    EXPECT_EQ(draw.at(0).status.code(), Code::kInternal);
    EXPECT_FALSE(score(draw.logits.data(), 100, 1, 0).ok());
  }
}

TEST(Sampler, ADeviceIsToldEachTokenThatChangesOnce) {
  SamplingParams params;
  params.logit_bias = {{9, 0.5f}, {3, 1.0f}, {9, 0.25f}, {7, 2.0f}};
  params.presence_penalty = 0.5f;
  const std::vector<int32_t> barred{7, 4};
  TokenCounts counts;
  for (const int32_t id : {1, 3, 4, 9}) counts.add_prompt(id);
  for (const int32_t id : {9, 9, 4, 6}) counts.add_output(id);
  SampleInput input;
  input.params = &params;
  input.counts = &counts;
  input.barred = barred;
  constexpr float kBarred = -std::numeric_limits<float>::infinity();
  using Told = std::map<int32_t, std::pair<float, int32_t>>;  // bias, count
  const auto told = [&] {
    Told out;
    for (const SampleChange& c : sample_request(input).changes)
      EXPECT_TRUE(out.emplace(c.token, std::pair(c.bias, c.count)).second) << c.token;
    return out;
  };
  // Tokens of the prompt alone change nothing without a repetition penalty.
  EXPECT_EQ(told(), (Told{{3, {1.0f, -1}},
                          {4, {kBarred, 1}},
                          {6, {0.0f, 1}},
                          {7, {kBarred, -1}},
                          {9, {0.75f, 2}}}));
  params.repetition_penalty = 1.5f;
  EXPECT_EQ(told(), (Told{{1, {0.0f, 0}},
                          {3, {1.0f, 0}},
                          {4, {kBarred, 1}},
                          {6, {0.0f, 1}},
                          {7, {kBarred, -1}},
                          {9, {0.75f, 2}}}));
}

}  // namespace
}  // namespace deltad
