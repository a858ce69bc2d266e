#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/logit_scan.h"
#include "engine/philox.h"

namespace deltad {
namespace {

constexpr float kBarred = -std::numeric_limits<float>::infinity();

Status all_barred() {
  return internal_error("no token can be sampled: bias and min_tokens bar all of them");
}

Status not_finite() { return internal_error("the model's logits are not finite numbers"); }

float logprob_of(float logit, double log_sum) {
  return static_cast<float>(std::min(0.0, static_cast<double>(logit) - log_sum));
}

double log_sum_exp(const float* logits, int64_t vocab, float max) {
  return static_cast<double>(max) + std::log(sum_exp(logits, vocab, max, 1.0f, nullptr));
}

std::vector<TokenLogprob> top_entries(const float* logits, int64_t vocab, int32_t top,
                                      double log_sum) {
  std::vector<Candidate> best;
  largest(logits, vocab, top, best);
  std::vector<TokenLogprob> out;
  out.reserve(best.size());
  for (const Candidate& c : best) out.push_back({c.id, logprob_of(c.value, log_sum)});
  return out;
}

// Applies bias, bars and penalties; remembers the first value of whatever it changes.
class Changes {
 public:
  Changes(float* logits, int64_t vocab) : logits_(logits), vocab_(vocab) {}

  void apply(const SampleInput& input) {
    for (const auto& [id, bias] : input.params->logit_bias)
      if (float* x = at(id)) *x += bias;
    for (const int32_t id : input.barred)
      if (float* x = at(id)) *x = kBarred;
    if (input.counts == nullptr) return;
    const SamplingParams& p = *input.params;
    for (const auto& [id, count] : input.counts->output()) {
      float* x = at(id);
      if (x == nullptr) continue;
      *x = *x > 0 ? *x / p.repetition_penalty : *x * p.repetition_penalty;
      if (count > 0) *x -= p.frequency_penalty * static_cast<float>(count) + p.presence_penalty;
    }
  }
  bool any() const { return !before_.empty(); }
  float unchanged(int32_t id) const {
    for (const Candidate& c : before_)
      if (c.id == id) return c.value;
    return logits_[id];
  }

 private:
  float* at(int32_t id) {
    if (id < 0 || id >= vocab_) return nullptr;
    before_.push_back({id, logits_[id]});
    return logits_ + id;
  }
  float* logits_;
  int64_t vocab_;
  std::vector<Candidate> before_;
};

// The changes of bias and bars, by token, each once.
std::vector<SampleChange> biased(const SampleInput& input) {
  std::vector<SampleChange> all;
  for (const auto& [id, bias] : input.params->logit_bias) all.push_back({id, bias});
  for (const int32_t id : input.barred) all.push_back({id, kBarred});
  std::stable_sort(all.begin(), all.end(),
                   [](const SampleChange& a, const SampleChange& b) { return a.token < b.token; });
  std::vector<SampleChange> out;
  for (const SampleChange& change : all) {
    if (out.empty() || out.back().token != change.token)
      out.push_back(change);
    else
      out.back().bias = change.bias == kBarred ? kBarred : out.back().bias + change.bias;
  }
  return out;
}

// Picks by u in [0, 1) among all tokens, in proportion to exp((x − max) · scale).
int32_t pick_any(const float* x, int64_t vocab, float max, float scale, double u) {
  std::vector<double> chunks;
  double rest = u * sum_exp(x, vocab, max, scale, &chunks);
  size_t chunk = 0;
  while (chunk + 1 < chunks.size() && rest >= chunks[chunk]) rest -= chunks[chunk++];
  const int64_t first = static_cast<int64_t>(chunk) * kExpChunk;
  // Rounding may leave a little over at the end: the last token that has any weight takes it.
  int64_t last = -1;
  for (int64_t i = first; i < std::min(first + kExpChunk, vocab); ++i) {
    const double weight = exp_negative((x[i] - max) * scale);
    if (weight <= 0) continue;
    last = i;
    if (rest < weight) break;
    rest -= weight;
  }
  return last >= 0 ? static_cast<int32_t>(last) : index_of(x, vocab, max);
}

// Turns logits into weights, 1 for the largest; their sum.
double weigh(std::vector<Candidate>& kept, float max, float scale) {
  double sum = 0;
  for (Candidate& c : kept) {
    c.value = exp_negative((c.value - max) * scale);
    sum += c.value;
  }
  return sum;
}

// Keeps the fewest candidates, of the largest weights, that together weigh at least `wanted`; all
// if even they weigh less, and then says false. Halves the part in question instead of sorting it.
bool cut(std::vector<Candidate>& kept, double wanted) {
  constexpr std::ptrdiff_t kFew = 32;
  auto first = kept.begin(), end = kept.end();
  double before = 0;  // weight of [begin, first), all larger than the rest
  while (end - first > kFew) {
    const auto middle = first + (end - first) / 2;
    std::nth_element(first, middle, end, better);
    double sum = before;
    for (auto at = first; at != middle; ++at) sum += at->value;
    if (sum >= wanted) {
      end = middle;
    } else {
      before = sum;
      first = middle;
    }
  }
  std::sort(first, end, better);
  for (; first != end; ++first) {
    before += first->value;
    if (before < wanted) continue;
    kept.erase(first + 1, kept.end());
    return true;
  }
  return false;
}

// Leaves in `kept`, with their weights, what top_k, top_p and min_p let through.
void truncate(const float* x, int64_t vocab, float max, float scale, const SamplingParams& p,
              std::vector<Candidate>& kept) {
  if (p.top_k > 0 && p.top_k < vocab) {
    largest(x, vocab, p.top_k, kept);
    const double sum = weigh(kept, max, scale);
    if (p.top_p < 1) cut(kept, p.top_p * sum);
  } else if (p.top_p < 1) {
    constexpr int64_t kFew = 64;  // usually they hold the share
    const double wanted = p.top_p * sum_exp(x, vocab, max, scale, nullptr);
    largest(x, vocab, kFew, kept);
    weigh(kept, max, scale);
    if (!cut(kept, wanted)) {
      // All tokens below this weight together weigh less than the rest may, so none of them is in.
      const double least = (wanted / p.top_p - wanted) / static_cast<double>(vocab) * 0.999;
      const double floor = least > 0 ? std::max(std::log(least), -87.0) : -87.0;
      at_least(x, vocab, static_cast<float>(max + floor / scale), kept);
      weigh(kept, max, scale);
      cut(kept, wanted);
    }
  } else {
    // A little lower than the bound, which the weights decide.
    at_least(x, vocab, static_cast<float>(max + (std::log(p.min_p) - 1e-3) / scale), kept);
    weigh(kept, max, scale);
  }
  kept.erase(std::remove_if(kept.begin(), kept.end(),
                            [&](const Candidate& c) { return c.value < p.min_p; }),
             kept.end());
}

// By id, as pick_any and a device do: first the range of ids where u falls, then in it.
int32_t pick_among(const std::vector<Candidate>& kept, double u) {
  constexpr int32_t kRanges = 256;
  int32_t highest = 0;
  for (const Candidate& c : kept) highest = std::max(highest, c.id);
  const int32_t width = highest / kRanges + 1;
  std::array<double, kRanges> sums{};
  for (const Candidate& c : kept) sums[static_cast<size_t>(c.id / width)] += c.value;
  double sum = 0;
  for (const double of_range : sums) sum += of_range;
  double rest = u * sum;
  // Rounding may leave a little over at the end, which the last with any weight takes.
  size_t range = 0, last_range = 0;
  for (size_t r = 0; r < sums.size(); ++r)
    if (sums[r] > 0) last_range = r;
  while (range < last_range && rest >= sums[range]) rest -= sums[range++];
  std::vector<Candidate> in_range;
  for (const Candidate& c : kept)
    if (static_cast<size_t>(c.id / width) == range && c.value > 0) in_range.push_back(c);
  std::sort(in_range.begin(), in_range.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  int32_t last = -1;
  for (const Candidate& c : in_range) {
    last = c.id;
    if (rest < c.value) break;
    rest -= c.value;
  }
  return last;
}

}  // namespace

Sampled sample(const SampleInput& input) {
  Sampled out;
  float* x = input.logits;
  const SamplingParams& p = *input.params;
  LogitMax max = scan_max(x, input.vocab);
  if (!max.finite) {
    out.status = not_finite();
    return out;
  }
  double log_sum = 0;
  if (input.top >= 0) {
    log_sum = log_sum_exp(x, input.vocab, max.value);
    out.scored.top = top_entries(x, input.vocab, input.top, log_sum);
  }
  Changes changes(x, input.vocab);
  changes.apply(input);
  if (changes.any()) {
    max = scan_max(x, input.vocab);
    if (!std::isfinite(max.value)) {
      out.status = all_barred();
      return out;
    }
  }
  const bool truncated = (p.top_k > 0 && p.top_k < input.vocab) || p.top_p < 1 || p.min_p > 0;
  if (p.temperature < kGreedyTemperature) {
    out.token = index_of(x, input.vocab, max.value);
  } else {
    const float scale = 1 / p.temperature;
    const double u = philox_uniform(p.seed, static_cast<uint32_t>(input.choice), input.position);
    if (truncated) {
      std::vector<Candidate> kept;
      truncate(x, input.vocab, max.value, scale, p, kept);
      out.token = pick_among(kept, u);
    } else {
      out.token = pick_any(x, input.vocab, max.value, scale, u);
    }
  }
  if (input.top >= 0) out.scored.logprob = logprob_of(changes.unchanged(out.token), log_sum);
  return out;
}

Result<Scored> score(const float* logits, int64_t vocab, int32_t token, int32_t top) {
  const LogitMax max = scan_max(logits, vocab);
  if (!max.finite) return not_finite();
  const double log_sum = log_sum_exp(logits, vocab, max.value);
  // A prompt may hold tokens that this head cannot predict (a variant with a larger vocabulary).
  const float logprob =
      token < vocab ? logprob_of(logits[token], log_sum) : -std::numeric_limits<float>::infinity();
  return Scored{logprob, top_entries(logits, vocab, top, log_sum)};
}

SampleRequest sample_request(const SampleInput& input) {
  const SamplingParams& p = *input.params;
  SampleRequest out;
  out.temperature = p.temperature;
  out.top_p = p.top_p;
  out.min_p = p.min_p;
  out.top_k = p.top_k;
  out.repetition_penalty = p.repetition_penalty;
  out.frequency_penalty = p.frequency_penalty;
  out.presence_penalty = p.presence_penalty;
  out.seed = p.seed;
  out.position = input.position;
  out.choice = input.choice;
  out.top = input.top;
  out.changes = biased(input);
  if (input.counts == nullptr) return out;
  // A long prompt has thousands of tokens, so what changes nothing stays out.
  const auto by_token = [](const SampleChange& c, int32_t token) { return c.token < token; };
  const auto& counts = input.counts->output();
  const size_t given = out.changes.size();
  out.changes.reserve(given + counts.size());
  for (const auto& [id, count] : counts) {
    if (count == 0 && p.repetition_penalty == 1) continue;
    const auto end = out.changes.begin() + static_cast<std::ptrdiff_t>(given);
    const auto at = std::lower_bound(out.changes.begin(), end, id, by_token);
    if (at != end && at->token == id)
      at->count = count;
    else
      out.changes.push_back({id, 0, count});
  }
  return out;
}

SampleRequest score_request(int32_t token, int32_t top) {
  SampleRequest out;
  out.top = top;
  out.given = token;
  return out;
}

Sampled sampled(const SampleOutcome& outcome) {
  Sampled out;
  if (outcome.state == SampleOutcome::State::kNotFinite) out.status = not_finite();
  if (outcome.state == SampleOutcome::State::kAllBarred) out.status = all_barred();
  out.token = outcome.token;
  out.scored.logprob = outcome.logprob;
  for (const SampleOutcome::Top& top : outcome.top)
    out.scored.top.push_back({top.token, top.logprob});
  return out;
}

}  // namespace deltad
