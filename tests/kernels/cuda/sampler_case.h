// Rows of logits with what is asked of each, and what the fp64 oracle says: for the sampler's tests
// on the emulator and those of its PTX.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/philox.h"
#include "kernels/cuda/sampler.h"
#include "kernels/ref/sampler.h"
#include "tests/support/cuda_on_cpu/global_memory.h"

namespace deltad::cuda {

class SamplerCase {
 public:
  explicit SamplerCase(int32_t vocabulary) : vocabulary_(vocabulary) {}

  // What an ordinary row asks for: temperature 1 and nothing else.
  SampleRow plain(uint64_t position) const {
    return {vocabulary_, 1, 1, 0, 0, 1, 0, 0, 1234567, position, 0, 0, 0, 0, -1, -1};
  }
  void add(SampleRow row, const std::vector<float>& logits,
           const std::vector<LogitChange>& changes = {}) {
    row.changes = static_cast<int32_t>(changes_.size());
    row.change_count = static_cast<int32_t>(changes.size());
    changes_.insert(changes_.end(), changes.begin(), changes.end());
    changes_.push_back({-7, 0, -7});  // room for the chosen token
    rows_.push_back(row);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    logits_.insert(logits_.end(), 3, NAN);  // beyond the row's own vocabulary
  }
  int32_t rows() const { return static_cast<int32_t>(rows_.size()); }
  int32_t stride() const { return vocabulary_ + 3; }

  struct Output {
    std::vector<SampleResult> results;
    std::vector<TopToken> tops;
    std::vector<LogitChange> changes;

    bool operator==(const Output& other) const {
      return same(results, other.results) && same(tops, other.tops) && same(changes, other.changes);
    }

   private:
    template <class T>
    static bool same(const std::vector<T>& a, const std::vector<T>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
    }
  };

  // Rows [first, end) alone.
  template <class LaunchKernel>
  Output run(int32_t first, int32_t end, LaunchKernel launch) const {
    using emulator::Access;
    using emulator::DeviceBuffer;
    DeviceBuffer<float> logits("logits",
                               std::vector<float>(logits_.begin() + int64_t{first} * stride(),
                                                  logits_.begin() + int64_t{end} * stride()),
                               Access::kWrite);
    DeviceBuffer<SampleRow> in(
        "rows", std::vector<SampleRow>(rows_.begin() + first, rows_.begin() + end), Access::kFresh);
    DeviceBuffer<LogitChange> changes("changes", changes_, Access::kWrite);
    DeviceBuffer<float> unchanged("unchanged", changes_.size(), Access::kWrite);
    const auto count = static_cast<size_t>(end - first);
    DeviceBuffer<SampleResult> results("results", count, Access::kWrite);
    DeviceBuffer<TopToken> tops("tops", count * kMaxTop, Access::kWrite);
    const SamplerParams p = {logits.data(),  in.data(),   changes.data(), unchanged.data(),
                             results.data(), tops.data(), stride(),       end - first};
    launch(kSamplerKernel, sampler_launch(p), p);
    return {results.values(), tops.values(), changes.values()};
  }

  // What is wrong with the output of all rows; "" if nothing is.
  std::string wrong(const Output& out) const {
    for (int32_t row = 0; row < rows(); ++row) {
      const std::string what = wrong_in(row, out);
      if (!what.empty()) return "row " + std::to_string(row) + ": " + what;
    }
    return "";
  }

 private:
  std::string wrong_in(int32_t row, const Output& out) const {
    const SampleRow& in = rows_[static_cast<size_t>(row)];
    const SampleResult& result = out.results[static_cast<size_t>(row)];
    const std::vector<double> logits(logits_.begin() + int64_t{row} * stride(),
                                     logits_.begin() + int64_t{row} * stride() + in.vocabulary);
    const auto number = [](double v) { return std::to_string(v); };
    if (!std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); })) {
      return result.status == SampleStatus::kNotFinite && result.token == -1 ? "" : "not refused";
    }
    std::vector<ref::LogitChange> changes;
    for (int32_t i = 0; i < in.change_count; ++i) {
      const LogitChange& change = changes_[static_cast<size_t>(in.changes + i)];
      changes.push_back({change.token, change.bias, change.count});
    }
    if (static_cast<int32_t>(changes.size()) == in.vocabulary && changes[0].bias == -INFINITY) {
      return result.status == SampleStatus::kAllBarred ? "" : "not refused";
    }
    if (result.status != SampleStatus::kOk) return "refused";

    const std::vector<double> logprobs = ref::log_softmax(logits);
    // What fp32 weights (3e-7 each, and 2^-40) leave of the sum, and the result's own rounding.
    const double error = 4e-7 + std::ldexp(in.vocabulary, -40);
    const auto near = [&](double got, double want) {
      return std::abs(got - want) <= error + std::ldexp(std::abs(want), -23);
    };
    if (in.given >= 0) {
      const bool known = in.given < in.vocabulary;
      const double want = known ? logprobs[static_cast<size_t>(in.given)] : -INFINITY;
      const bool right = known ? near(result.logprob, want) : result.logprob == want;
      if (result.token != in.given || !right) return "given: " + number(result.logprob);
    } else {
      if (result.token < 0 || result.token >= in.vocabulary) return "no token";
      const std::string what = wrong_token(in, result.token, logits, changes);
      if (!what.empty()) return what;
      const double want = logprobs[static_cast<size_t>(result.token)];
      if (in.top >= 0 && !near(result.logprob, want)) {
        return "log-probability " + number(result.logprob) + ", not " + number(want);
      }
      const std::string count = wrong_count(in, result, out.changes);
      if (!count.empty()) return count;
    }
    return wrong_top(row, in, logprobs, out, near);
  }

  static std::string wrong_token(const SampleRow& in, int32_t token,
                                 const std::vector<double>& logits,
                                 const std::vector<ref::LogitChange>& changes) {
    const std::vector<double> probabilities = ref::token_probabilities(
        logits, changes,
        {in.temperature < kGreedyTemperature ? 0.0 : in.temperature, in.top_p, in.min_p, in.top_k,
         in.repetition_penalty, in.frequency_penalty, in.presence_penalty});
    double before = 0;
    for (int32_t id = 0; id < token; ++id) before += probabilities[static_cast<size_t>(id)];
    const double own = probabilities[static_cast<size_t>(token)];
    // fp32 weights, of logits that temperature and penalties have rounded (some 30 in size).
    const double u = philox_uniform(in.seed, in.choice, in.position), error = 2e-5;
    const bool greedy = in.temperature < kGreedyTemperature;
    if (own > 0 && (greedy || (before - error <= u && u <= before + own + error))) return "";
    return "token " + std::to_string(token) + " of probability " + std::to_string(own) + " after " +
           std::to_string(before) + " for " + std::to_string(u);
  }

  std::string wrong_count(const SampleRow& in, const SampleResult& result,
                          const std::vector<LogitChange>& after) const {
    int32_t count = in.change_count;
    for (int32_t i = 0; i <= in.change_count; ++i) {
      LogitChange want = changes_[static_cast<size_t>(in.changes + i)];
      const LogitChange& got = after[static_cast<size_t>(in.changes + i)];
      if (in.count_tokens != 0 && want.token == result.token) {
        want.count = std::max(want.count, 0) + 1;
        count = -1;  // it was there
      } else if (i == in.change_count && in.count_tokens != 0 && count >= 0) {
        want = {result.token, 0, 1};
      }
      if (got.token != want.token || got.count != want.count || got.bias != want.bias) {
        return "change " + std::to_string(i);
      }
    }
    const int32_t added = in.count_tokens != 0 && count >= 0 ? 1 : 0;
    return result.change_count == in.change_count + added ? "" : "number of changes";
  }

  template <class Near>
  static std::string wrong_top(int32_t row, const SampleRow& in,
                               const std::vector<double>& logprobs, const Output& out, Near near) {
    std::vector<int32_t> order;
    for (int32_t id = 0; id < in.vocabulary; ++id) order.push_back(id);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logprobs[static_cast<size_t>(a)] > logprobs[static_cast<size_t>(b)];
    });
    for (int32_t i = 0; i < std::min(in.top, in.vocabulary); ++i) {
      const TopToken& got = out.tops[static_cast<size_t>(row * kMaxTop + i)];
      const int32_t want = order[static_cast<size_t>(i)];
      if (got.token != want || !near(got.logprob, logprobs[static_cast<size_t>(want)])) {
        return "top " + std::to_string(i) + " is token " + std::to_string(got.token);
      }
    }
    return "";
  }

  const int32_t vocabulary_;
  std::vector<SampleRow> rows_;
  std::vector<LogitChange> changes_;
  std::vector<float> logits_;
};

// Rows of every kind.
inline SamplerCase sampler_case(int32_t vocabulary) {
  SamplerCase c(vocabulary);
  std::mt19937 random(static_cast<unsigned>(vocabulary));
  std::normal_distribution<float> normal;
  const auto logits = [&](float size, float grid) {
    std::vector<float> x;
    for (int32_t i = 0; i < vocabulary; ++i) {
      const float v = size * normal(random);
      x.push_back(grid > 0 ? std::round(v / grid) * grid : v);
    }
    return x;
  };
  uint64_t position = 0;
  const auto plain = [&] { return c.plain(position++); };
  for (const float grid : {0.0f, 0.5f}) {  // with a grid, many tokens are equally good
    SampleRow row = plain();
    row.temperature = 0;
    row.top = 3;
    c.add(row, logits(3, grid));
    c.add(plain(), logits(3, grid));
    row = plain();
    row.temperature = 0.7f;
    row.top_k = 1;
    c.add(row, logits(3, grid));
    row = plain();
    row.top_k = 40;
    row.top = 20;
    c.add(row, logits(0.1f, grid));
    row = plain();
    row.top_k = 40;
    row.top_p = 0.9f;
    c.add(row, logits(3, grid));
    for (const float top_p : {1e-6f, 0.51f, 0.995f}) {
      row = plain();
      row.top_p = top_p;
      row.temperature = 1.5f;
      c.add(row, logits(2, grid));
    }
    row = plain();
    row.min_p = 0.13f;
    c.add(row, logits(3, grid));
    row = plain();
    row.top_k = 100;
    row.top_p = 0.8f;
    row.min_p = 0.05f;
    row.choice = 3;
    row.top = 0;
    c.add(row, logits(1, grid));
  }
  // All tokens alike.
  SampleRow row = plain();
  row.top_p = 0.4001f;
  row.top = kMaxTop;
  c.add(row, std::vector<float>(static_cast<size_t>(vocabulary), -0.0f));
  // Best tokens barred, penalties, and the chosen token counted, whether it was there or not.
  for (const bool greedy : {true, false, false}) {
    std::vector<float> x = logits(2, 0);
    std::vector<LogitChange> changes;
    for (int32_t token = 0; token < vocabulary / 2; token += 2) {
      x[static_cast<size_t>(token)] += 6;
      changes.push_back({token, token % 4 == 0 ? -INFINITY : 0.5f, token % 3 - 1});
    }
    // So that some threads change what earlier ones read, and some what later ones read.
    std::shuffle(changes.begin(), changes.end(), random);
    row = plain();
    row.temperature = greedy ? 0 : 1;
    row.repetition_penalty = 1.3f;
    row.frequency_penalty = 0.4f;
    row.presence_penalty = 2;
    row.count_tokens = 1;
    row.top = 2;
    c.add(row, x, changes);
  }
  // What is given; then rows that are refused.
  for (const int32_t given : {0, vocabulary - 1, vocabulary}) {
    row = plain();
    row.given = given;
    row.top = 1;
    c.add(row, logits(3, 0));
  }
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = logits(3, 0);
    x[static_cast<size_t>(vocabulary / 2)] = bad;
    c.add(plain(), x);
  }
  std::vector<LogitChange> all;
  for (int32_t token = 0; token < vocabulary; ++token) all.push_back({token, -INFINITY, -1});
  c.add(plain(), logits(1, 0), all);
  // The last token of the last row.
  std::vector<float> x = logits(1, 0);
  x.back() = 9;
  row = plain();
  row.top_k = 1;
  c.add(row, x);
  return c;
}

}  // namespace deltad::cuda
