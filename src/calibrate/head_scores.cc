#include "calibrate/head_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/mutex.h"
#include "calibrate/fit_kernels.h"
#include "delta/work_list.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kHeadRows = 1024;  // of a block
constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// log Σ exp and the largest of the logits so far.
struct Normalizer {
  double top = -std::numeric_limits<double>::infinity();
  double sum = 0;  // Σ exp(l − top)
  int64_t best = -1;

  void add(double logit, int64_t token) {
    if (logit > top) {
      sum = sum * std::exp(top - logit) + 1;
      top = logit;
      best = token;
    } else {
      sum += std::exp(logit - top);
    }
  }
  void merge(const Normalizer& other) {
    if (other.top > top || (other.top == top && other.best < best)) {
      sum = sum * std::exp(top - other.top) + other.sum;
      top = other.top;
      best = other.best;
    } else {
      sum += other.sum * std::exp(other.top - top);
    }
  }
  double log_sum() const { return top + std::log(sum); }
};

// Of one token: the three distributions, and Σ exp(p − p.top)(p − q) for both q.
struct TokenSums {
  Normalizer tune, base, variant;
  double to_base = 0, to_variant = 0;
};

class Heads {
 public:
  Heads(const Checkpoint& base, const Tune& tune) : base_(base), tune_(tune) {
    base_name_ = base.tensors().count(kHead) != 0 ? kHead : kEmbeddings;
    tune_name_ = tune.tied_head() ? kEmbeddings : kHead;
    tuned_ = tune.tensors().count(tune_name_) != 0;
    if (!tuned_ && base.tensors().count(tune_name_) == 0) tune_name_ = base_name_;
  }
  bool same() const { return !tuned_ && tune_name_ == base_name_; }
  int64_t vocab() const { return base_.tensors().at(base_name_).shape[0]; }

  Status base_rows(int64_t first, int64_t count, float* out) const {
    return read_base(base_name_, first, count, out);
  }
  Status tune_rows(int64_t first, int64_t count, float* out) const {
    if (!tuned_) return read_base(tune_name_, first, count, out);
    RETURN_IF_ERROR(tune_.value_rows(tune_name_, first, count, out));
    for (int64_t i = 0; i < count * columns(); ++i) out[i] = bf16_to_f32(f32_to_bf16(out[i]));
    return {};
  }
  int64_t columns() const { return base_.tensors().at(base_name_).shape[1]; }

 private:
  Status read_base(const std::string& name, int64_t first, int64_t count, float* out) const {
    std::vector<uint16_t> rows(static_cast<size_t>(count * columns()));
    RETURN_IF_ERROR(base_.read_rows_bf16(name, first, count, rows.data()));
    std::transform(rows.begin(), rows.end(), out, bf16_to_f32);
    return {};
  }

  const Checkpoint& base_;
  const Tune& tune_;
  std::string base_name_, tune_name_;
  bool tuned_ = false;
};

}  // namespace

Result<HeadScores> score_heads(const Checkpoint& base, const Tune& tune,
                               const std::vector<float>& of_base, const std::vector<float>& of_tune,
                               const std::vector<float>& of_variant, int threads) {
  const Heads heads(base, tune);
  const int64_t columns = heads.columns(), vocab = heads.vocab();
  const auto tokens = static_cast<int64_t>(of_base.size()) / columns;
  Mutex mutex;
  std::vector<TokenSums> sums(static_cast<size_t>(tokens));
  const Status status =
      run_work_list((vocab + kHeadRows - 1) / kHeadRows, threads, [&](int64_t block) -> Status {
        const int64_t first = block * kHeadRows, count = std::min(kHeadRows, vocab - first);
        std::vector<float> rows(static_cast<size_t>(count * columns));
        const auto logits = [&](const std::vector<float>& x) {
          std::vector<float> out(static_cast<size_t>(tokens * count));
          fit_kernels().multiply(tokens, count, columns, x.data(), false, rows.data(), true,
                                 out.data());
          return out;
        };
        RETURN_IF_ERROR(heads.tune_rows(first, count, rows.data()));
        const std::vector<float> p = logits(of_tune), v = logits(of_variant);
        if (!heads.same()) RETURN_IF_ERROR(heads.base_rows(first, count, rows.data()));
        const std::vector<float> b = logits(of_base);
        std::vector<TokenSums> mine(static_cast<size_t>(tokens));
        for (int64_t t = 0; t < tokens; ++t) {
          TokenSums& sum = mine[static_cast<size_t>(t)];
          const auto at = static_cast<size_t>(t * count);
          for (size_t i = at; i < at + static_cast<size_t>(count); ++i) {
            const int64_t token = first + static_cast<int64_t>(i - at);
            sum.tune.add(static_cast<double>(p[i]), token);
            sum.base.add(static_cast<double>(b[i]), token);
            sum.variant.add(static_cast<double>(v[i]), token);
          }
          for (size_t i = at; i < at + static_cast<size_t>(count); ++i) {
            const double weight = std::exp(static_cast<double>(p[i]) - sum.tune.top);
            sum.to_base += weight * static_cast<double>(p[i] - b[i]);
            sum.to_variant += weight * static_cast<double>(p[i] - v[i]);
          }
        }
        MutexLock lock(mutex);
        for (size_t t = 0; t < sums.size(); ++t) {
          TokenSums &to = sums[t], &from = mine[t];
          const double top = std::max(to.tune.top, from.tune.top);
          const double keep = std::exp(to.tune.top - top), add = std::exp(from.tune.top - top);
          to.to_base = to.to_base * keep + from.to_base * add;
          to.to_variant = to.to_variant * keep + from.to_variant * add;
          to.tune.merge(from.tune);
          to.base.merge(from.base);
          to.variant.merge(from.variant);
        }
        return {};
      });
  RETURN_IF_ERROR(status);
  HeadScores scores;
  for (const TokenSums& sum : sums) {
    const auto kl = [&](double weighted, const Normalizer& q) {
      return std::max(0.0, weighted / sum.tune.sum - sum.tune.log_sum() + q.log_sum());
    };
    scores.base.kl += kl(sum.to_base, sum.base);
    scores.variant.kl += kl(sum.to_variant, sum.variant);
    scores.base.top1 += sum.base.best == sum.tune.best;
    scores.variant.top1 += sum.variant.best == sum.tune.best;
  }
  for (HeadScore* score : {&scores.base, &scores.variant}) {
    score->kl /= static_cast<double>(std::max<int64_t>(1, tokens));
    score->top1 /= static_cast<double>(std::max<int64_t>(1, tokens));
  }
  return scores;
}

}  // namespace deltad
