#include "calibrate/head_scores.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "calibrate/row_products.h"
#include "delta/work_list.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kHeadRows = 1024;  // of a block
constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// exp(x) for x ≤ 0 to within some 1e-7·(1 − x) of itself, in a form that compilers make vectors of.
inline float power(float x) {
  const float t = (x > -87 ? x : -87) * 1.44269504f;  // −87 for a NaN too
  const auto whole = static_cast<int32_t>(t - 0.5f);  // the nearest integer
  const float f = (t - static_cast<float>(whole)) * 0.693147181f;
  const float series =
      1 + f * (1 + f * (0.5f + f * (1.0f / 6 + f * (1.0f / 24 + f * (1.0f / 120 + f / 720)))));
  return series * std::bit_cast<float>((whole + 127) << 23);
}

// out = exp(logits − top)
void powers(const float* logits, float top, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = power(logits[i] - top);
}

// Σ value(i), in fp32 for a short while.
template <typename Value>
double sum_of(int64_t count, Value value) {
  constexpr int64_t kLanes = 16, kChunk = 256;
  double sum = 0;
  for (int64_t first = 0; first < count; first += kChunk) {
    float lanes[kLanes] = {};
    const int64_t end = std::min(first + kChunk, count);
    int64_t i = first;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) lanes[k] += value(i + k);
    for (; i < end; ++i) lanes[0] += value(i);
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return sum;
}

// log Σ exp and the largest of the logits so far.
struct Normalizer {
  double top = -std::numeric_limits<double>::infinity();
  double sum = 0;  // Σ exp(l − top)
  int64_t best = -1;

  // Of tokens [first, first + count).
  void top_of(const float* logits, int64_t count, int64_t first) {
    const float* largest = std::max_element(logits, logits + count);
    top = static_cast<double>(*largest);
    best = first + (largest - logits);
  }
  // room: [count], gets exp(l − top).
  void add(const float* logits, int64_t count, int64_t first, float* room) {
    top_of(logits, count, first);
    powers(logits, static_cast<float>(top), count, room);
    sum = sum_of(count, [&](int64_t i) { return room[i]; });
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

  // bf16, rows `stride` values apart.
  Status base_rows(int64_t first, int64_t count, int64_t stride, uint16_t* out) const {
    std::vector<uint16_t> rows(static_cast<size_t>(count * columns()));
    RETURN_IF_ERROR(base_.read_rows_bf16(base_name_, first, count, rows.data()));
    spread(rows, count, stride, out);
    return {};
  }
  Status tune_rows(int64_t first, int64_t count, int64_t stride, uint16_t* out) const {
    std::vector<uint16_t> rows(static_cast<size_t>(count * columns()));
    if (tuned_) {
      std::vector<float> values(rows.size());
      RETURN_IF_ERROR(tune_.value_rows(tune_name_, first, count, values.data()));
      std::transform(values.begin(), values.end(), rows.begin(),
                     [](float v) { return f32_to_bf16(v); });
    } else {
      RETURN_IF_ERROR(base_.read_rows_bf16(tune_name_, first, count, rows.data()));
    }
    spread(rows, count, stride, out);
    return {};
  }
  int64_t columns() const { return base_.tensors().at(base_name_).shape[1]; }

 private:
  void spread(const std::vector<uint16_t>& rows, int64_t count, int64_t stride,
              uint16_t* out) const {
    for (int64_t r = 0; r < count; ++r)
      std::copy_n(rows.data() + r * columns(), columns(), out + r * stride);
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
  ASSIGN_OR_RETURN(const Isa isa, choose_isa(""));
  const auto prepared = [&](const std::vector<float>& x) {
    return RowProducts::rounded(isa, x.data(), tokens, columns);
  };
  ASSIGN_OR_RETURN(const RowProducts base_x, prepared(of_base));
  ASSIGN_OR_RETURN(const RowProducts tune_x, prepared(of_tune));
  ASSIGN_OR_RETURN(const RowProducts variant_x, prepared(of_variant));
  const int64_t width = tune_x.columns();
  Mutex mutex;
  std::vector<TokenSums> sums(static_cast<size_t>(tokens));
  const Status status =
      run_work_list((vocab + kHeadRows - 1) / kHeadRows, threads, [&](int64_t block) -> Status {
        const int64_t first = block * kHeadRows, count = std::min(kHeadRows, vocab - first);
        std::vector<uint16_t> rows(static_cast<size_t>(count * width));
        TileRoom room;
        uint16_t* const tiles = room.of(cpu::base_elements(count, width));
        ProductScratch scratch;
        const auto pack = [&] {
          for (int64_t r = 0; r < count; r += cpu::kTileRows)
            cpu::pack_base_tile(tiles + r * width, rows.data() + r * width,
                                std::min<int64_t>(cpu::kTileRows, count - r), width);
        };
        const auto logits = [&](const RowProducts& x) {
          std::vector<float> out(static_cast<size_t>(tokens * count));
          x.times(tiles, count, out.data(), count, &scratch);
          return out;
        };
        RETURN_IF_ERROR(heads.tune_rows(first, count, width, rows.data()));
        pack();
        const std::vector<float> p = logits(tune_x), v = logits(variant_x);
        if (!heads.same()) {
          RETURN_IF_ERROR(heads.base_rows(first, count, width, rows.data()));
          pack();
        }
        const std::vector<float> b = logits(base_x);
        std::vector<TokenSums> mine(static_cast<size_t>(tokens));
        const std::unique_ptr<float[]> weight(new float[static_cast<size_t>(count)]);
        for (int64_t t = 0; t < tokens; ++t) {
          TokenSums& sum = mine[static_cast<size_t>(t)];
          const float *tune_l = p.data() + t * count, *base_l = b.data() + t * count,
                      *variant_l = v.data() + t * count;
          sum.base.add(base_l, count, first, weight.get());
          sum.variant.add(variant_l, count, first, weight.get());
          sum.tune.add(tune_l, count, first, weight.get());
          sum.to_base =
              sum_of(count, [&](int64_t i) { return weight[i] * (tune_l[i] - base_l[i]); });
          sum.to_variant =
              sum_of(count, [&](int64_t i) { return weight[i] * (tune_l[i] - variant_l[i]); });
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
      const double value = weighted / sum.tune.sum - sum.tune.log_sum() + q.log_sum();
      // Rounding makes it negative, which means nothing; logits that are no numbers do.
      return std::isfinite(value) ? std::max(0.0, value) : std::nan("");
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
