#include "kernels/cuda/device.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/sampler.h"
#include "kernels/cuda/sampler_row.h"
#include "kernels/cuda/sampler_select.h"

namespace deltad::cuda {
namespace {

struct Sampler {
  const SamplerParams& p;
  const SamplerShared shared;
  int32_t row;
  SampleRow in;
  float* x;
  LogitChange* changes;
  float* unchanged;
  int32_t thread;

  DELTAD_DEVICE explicit Sampler(const SamplerParams& params) : p(params) {
    thread = static_cast<int32_t>(threadIdx.x);
    row = static_cast<int32_t>(blockIdx.x);
    const SampleRow* from = p.in + row;
    in.vocabulary = load_global(&from->vocabulary);
    in.temperature = load_global(&from->temperature);
    in.top_p = load_global(&from->top_p);
    in.min_p = load_global(&from->min_p);
    in.top_k = load_global(&from->top_k);
    in.seed = load_global(&from->seed);
    in.position = load_global(&from->position);
    in.choice = load_global(&from->choice);
    in.change_count = load_global(&from->change_count);
    in.count_tokens = load_global(&from->count_tokens);
    in.top = load_global(&from->top);
    in.given = load_global(&from->given);
    x = p.logits + row * p.logits_stride;
    changes = p.changes + load_global(&from->changes);
    unchanged = p.unchanged + load_global(&from->changes);
  }

  // A thread a changed logit.
  DELTAD_DEVICE void change_logits() const {
    const float repetition = load_global(&p.in[row].repetition_penalty);
    const float frequency = load_global(&p.in[row].frequency_penalty);
    const float presence = load_global(&p.in[row].presence_penalty);
    for (int32_t i = thread; in_bounds(i < in.change_count);
         i += static_cast<int32_t>(kSamplerThreads)) {
      const int32_t token = load_global(&changes[i].token);
      const int32_t count = load_global(&changes[i].count);
      float v = load_global(x + token);
      store_global(unchanged + i, v);
      v = __fadd_rn(v, load_global(&changes[i].bias));
      if (count >= 0) v = v > 0 ? v / repetition : __fmul_rn(v, repetition);
      if (count > 0) {
        v = __fadd_rn(v, -__fadd_rn(__fmul_rn(frequency, static_cast<float>(count)), presence));
      }
      store_global(x + token, v);
    }
    __syncthreads();
  }

  // ln Σ e^x, x's maximum given.
  DELTAD_DEVICE double log_sum(float max) const {
    const Weights weights = {max, 1};
    uint64_t sum = 0;
    for_each_logit(x, in.vocabulary, [&](int32_t, float v) { sum += weights(v); });
    // 2^e · m, 1 ≤ m < 2: fp32 loses 2^-24 of m, and none of e · ln 2.
    const uint32_t bits = __float_as_uint(static_cast<float>(sum_over_block(shared, sum)));
    const float m = __uint_as_float((bits & 0x007fffffu) | 0x3f800000u);
    const int32_t e = static_cast<int32_t>(bits >> 23) - 127 - 40;
    return static_cast<double>(max) + e * 0.693147180559945309 + static_cast<double>(logf(m));
  }
  DELTAD_DEVICE static float logprob(float logit, double log_sum) {
    const double value = static_cast<double>(logit) - log_sum;
    return value < 0 ? static_cast<float>(value) : 0.0f;
  }

  // The `count` best tokens: collected as they come, then each put where its rank is.
  DELTAD_DEVICE void store_top(int32_t count, double log_sum) const {
    if (thread == 0) store_shared(shared.top_count, 0);
    const Cut cut = select_prefix(shared, x, in.vocabulary, Ones{}, static_cast<uint64_t>(count));
    for_each_logit(x, in.vocabulary, [&](int32_t id, float v) {
      if (!cut.keeps(id, key_of(v))) return;
      const uint32_t at = atomic_add_shared(shared.top_count, 1);
      store_shared(shared.top_key + at, key_of(v));
      store_shared(shared.top_id + at, static_cast<uint32_t>(id));
    });
    __syncthreads();
    if (thread < count) {
      const uint32_t key = load_shared(shared.top_key + thread);
      const uint32_t id = load_shared(shared.top_id + thread);
      int32_t rank = 0;
      for (int32_t i = 0; i < count; ++i) {
        const uint32_t other = load_shared(shared.top_key + i);
        rank += other > key || (other == key && load_shared(shared.top_id + i) < id);
      }
      TopToken* to = p.tops + static_cast<int64_t>(row) * kMaxTop + rank;
      store_global(&to->token, static_cast<int32_t>(id));
      store_global(&to->logprob, logprob(logit_of(key), log_sum));
    }
  }

  DELTAD_DEVICE int32_t choose(const Best& best) const {
    if (in.temperature < kGreedyTemperature) return best.token;
    const Weights weights = {best.logit, 1.0f / in.temperature};
    Cut cut;
    if (in.top_k > 0 && in.top_k < in.vocabulary) {
      cut = select_prefix(shared, x, in.vocabulary, Ones{}, static_cast<uint64_t>(in.top_k));
    }
    if (in.top_p < 1) {
      uint64_t sum = 0;
      for_each_logit(x, in.vocabulary, [&](int32_t id, float v) {
        if (cut.keeps(id, key_of(v))) sum += weights(v);
      });
      sum = sum_over_block(shared, sum);
      auto wanted =
          static_cast<uint64_t>(ceil(static_cast<double>(in.top_p) * static_cast<double>(sum)));
      if (wanted < 1) wanted = 1;
      if (wanted < sum) cut = select_prefix(shared, x, in.vocabulary, weights, wanted);
    }
    const auto kept = [&](int32_t id, float v) -> uint64_t {
      return cut.keeps(id, key_of(v)) && weights.weight(v) >= in.min_p ? weights(v) : 0;
    };

    // Each warp weighs a range of ids; the one that holds the chosen part of the sum walks it.
    const int32_t lane = thread % 32, warp = thread / 32;
    const int32_t range = (in.vocabulary + kSamplerWarps * 32 - 1) / (kSamplerWarps * 32) * 32;
    const int32_t first = warp * range;
    const int32_t end = first + range < in.vocabulary ? first + range : in.vocabulary;
    uint64_t sum = 0;
    for (int32_t id = first + lane; in_bounds(id < end); id += 32) {
      sum += kept(id, load_global(x + id));
    }
    for (int flip = 16; flip > 0; flip /= 2) sum += __shfl_xor_sync(kAllLanes, sum, flip);
    const Shared<uint64_t> of_warps = shared.next_of_warps();
    if (lane == 0) store_shared(of_warps + warp, sum);
    __syncthreads();
    uint64_t before = 0, total = 0;
    for (int32_t w = 0; w < kSamplerWarps; ++w) {
      const uint64_t of_warp = load_shared(of_warps + w);
      if (w < warp) before += of_warp;
      total += of_warp;
    }
    const uint64_t target = __umul64hi(philox_fraction(in.seed, in.choice, in.position), total);
    if (before <= target && target < before + sum) {
      for (int32_t at = first;; at += 32) {
        const int32_t id = at + lane;
        const uint64_t own = in_bounds(id < end) ? kept(id, load_global(x + id)) : 0;
        uint64_t until = own;
        for (unsigned by = 1; by < 32; by *= 2) {
          const uint64_t other = __shfl_up_sync(kAllLanes, until, by);
          if (static_cast<uint32_t>(lane) >= by) until += other;
        }
        const uint32_t past = __ballot_sync(kAllLanes, target < before + until);
        if (past != 0) {
          // The first lane past the target.
          if ((past & ((1u << lane) - 1)) == 0 && (past >> lane & 1) != 0) {
            store_shared(shared.found, static_cast<uint64_t>(id));
          }
          break;
        }
        before += __shfl_sync(kAllLanes, until, 31);
      }
    }
    __syncthreads();
    return static_cast<int32_t>(load_shared(shared.found));
  }

  // The token's place among the changes, or their number.
  DELTAD_DEVICE int32_t change_of(int32_t token) const {
    uint64_t at = static_cast<uint64_t>(in.change_count);
    for (int32_t i = thread; in_bounds(i < in.change_count);
         i += static_cast<int32_t>(kSamplerThreads)) {
      if (load_global(&changes[i].token) == token) at = static_cast<uint64_t>(i);
    }
    return static_cast<int32_t>(
        over_block(shared, at, [](uint64_t a, uint64_t b) { return a < b ? a : b; }));
  }

  DELTAD_DEVICE void store(int32_t token, SampleStatus status, float logprob,
                           int32_t change_count) const {
    if (thread != 0) return;
    SampleResult* to = p.results + row;
    store_global(&to->token, token);
    store_global(&to->status, status);
    store_global(&to->logprob, logprob);
    store_global(&to->change_count, change_count);
  }

  DELTAD_DEVICE void run() const {
    Best best = best_of_row(shared, x, in.vocabulary);
    if (!best.finite) return store(-1, SampleStatus::kNotFinite, 0, in.change_count);
    double all = 0;
    if (in.top >= 0 || in.given >= 0) all = log_sum(best.logit);
    if (in.top > 0) store_top(in.top < in.vocabulary ? in.top : in.vocabulary, all);
    if (in.given >= 0) {
      // A token that this head does not have has no probability.
      const float value =
          in.given < in.vocabulary ? logprob(load_global(x + in.given), all) : -INFINITY;
      return store(in.given, SampleStatus::kOk, value, in.change_count);
    }
    if (in.change_count > 0) {
      change_logits();
      best = best_of_row(shared, x, in.vocabulary);
      if (best.logit == -INFINITY) {
        return store(-1, SampleStatus::kAllBarred, 0, in.change_count);
      }
    }
    const int32_t token = choose(best);
    const int32_t at = change_of(token);
    const bool changed = at < in.change_count;
    float value = 0;
    if (in.top >= 0) value = logprob(load_global(changed ? unchanged + at : x + token), all);
    int32_t count = in.change_count;
    if (in.count_tokens != 0 && thread == 0) {
      const int32_t times = changed ? load_global(&changes[at].count) : 0;
      if (!changed) {
        store_global(&changes[at].token, token);
        store_global(&changes[at].bias, 0);
      }
      store_global(&changes[at].count, times > 0 ? times + 1 : 1);
      count += changed ? 0 : 1;
    }
    store(token, SampleStatus::kOk, value, count);
  }
};

}  // namespace

// One block a multiprocessor: ptxas would spill for more (sm_100).
extern "C" __global__ void __launch_bounds__(kSamplerThreads, 1) deltad_sampler(SamplerParams p) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  Sampler(p).run();
}

}  // namespace deltad::cuda
