// CudaOps: rows of logits sampled on the device. What is wanted of them goes there in one copy, and
// tokens come back, with log-probabilities where somebody asked for them.
#include <algorithm>

#include "backend/cuda/cuda_ops.h"
#include "base/check.h"
#include "kernels/cuda/sampler.h"

namespace deltad {
namespace {

// The kernels' form of the rows, and their changes one after the other.
struct Staged {
  std::vector<cuda::SampleRow> rows;
  std::vector<cuda::LogitChange> changes;
  bool tops = false;
};

Staged stage(std::span<const SampleRequest> wanted, std::span<const int64_t> vocab) {
  Staged out;
  for (size_t r = 0; r < wanted.size(); ++r) {
    const SampleRequest& w = wanted[r];
    cuda::SampleRow& row = out.rows.emplace_back();
    row.vocabulary = static_cast<int32_t>(vocab[r]);
    row.temperature = w.temperature;
    row.top_p = w.top_p;
    row.min_p = w.min_p;
    row.top_k = w.top_k;
    row.repetition_penalty = w.repetition_penalty;
    row.frequency_penalty = w.frequency_penalty;
    row.presence_penalty = w.presence_penalty;
    row.seed = w.seed;
    row.position = w.position;
    row.choice = static_cast<uint32_t>(w.choice);
    row.changes = static_cast<int32_t>(out.changes.size());
    for (const SampleChange& c : w.changes)
      if (c.token >= 0 && c.token < vocab[r]) out.changes.push_back({c.token, c.bias, c.count});
    row.change_count = static_cast<int32_t>(out.changes.size()) - row.changes;
    row.top = w.top;
    row.given = w.given;
    out.tops |= w.top > 0;
  }
  return out;
}

SampleOutcome::State state_of(cuda::SampleStatus status) {
  switch (status) {
    case cuda::SampleStatus::kOk:
      return SampleOutcome::State::kOk;
    case cuda::SampleStatus::kNotFinite:
      return SampleOutcome::State::kNotFinite;
    case cuda::SampleStatus::kAllBarred:
      return SampleOutcome::State::kAllBarred;
  }
  return SampleOutcome::State::kNotFinite;
}

}  // namespace

int32_t CudaOps::most_sampled_top() const { return cuda::kMaxTop; }

Result<std::vector<SampleOutcome>> CudaOps::end_step_sampled(
    TensorView logits, std::span<const int64_t> vocab, std::span<const SampleRequest> rows,
    const std::function<Status()>& meanwhile) {
  CHECK(static_cast<int64_t>(rows.size()) == logits.rows(), "a request for each row of logits");
  (void)end_list();
  const Staged staged = stage(rows, vocab);
  const size_t results = rows.size() * sizeof(cuda::SampleResult);
  const size_t tops = staged.tops ? rows.size() * cuda::kMaxTop * sizeof(cuda::TopToken) : 0;
  order_sampler(logits, staged.rows, staged.changes);
  note(device_.step_ended());
  count_bytes();
  if (!working()) return failed();
  RETURN_IF_ERROR(fetch_bytes(
      {{{scratch_.sample_results.data(), results}, {scratch_.sample_tops.data(), tops}}},
      meanwhile));
  const auto* result = static_cast<const cuda::SampleResult*>(downloaded_.data());
  const auto* top = downloaded_.at<const cuda::TopToken>(results);
  std::vector<SampleOutcome> out(rows.size());
  for (size_t r = 0; r < rows.size(); ++r, ++result, top += staged.tops ? cuda::kMaxTop : 0) {
    out[r] = {state_of(result->status), result->token, result->logprob, {}};
    if (result->status == cuda::SampleStatus::kNotFinite) continue;
    const int64_t count = std::min<int64_t>(rows[r].top, vocab[r]);
    for (int64_t i = 0; i < count; ++i) out[r].top.push_back({top[i].token, top[i].logprob});
  }
  return out;
}

void CudaOps::order_sampler(TensorView logits, std::span<const cuda::SampleRow> rows,
                            std::span<const cuda::LogitChange> changes) {
  if (!working()) return;
  const auto count = static_cast<int64_t>(rows.size());
  sampling_.clear();
  const size_t rows_at = sampling_.add(rows), changes_at = sampling_.add(changes);
  note(sampling_.send());
  grow(scratch_.sample_unchanged, 4 * std::max<int64_t>(1, std::ssize(changes)),
       "logits before their changes");
  grow(scratch_.sample_results, count * static_cast<int64_t>(sizeof(cuda::SampleResult)),
       "sampled tokens");
  grow(scratch_.sample_tops, count * cuda::kMaxTop * static_cast<int64_t>(sizeof(cuda::TopToken)),
       "the likeliest tokens");
  cuda::SamplerParams p{};
  p.logits = logits.as<float>();
  p.in = sampling_.at<cuda::SampleRow>(rows_at);
  // Tokens are counted by whoever asks: the kernel only reads the changes.
  p.changes = const_cast<cuda::LogitChange*>(sampling_.at<cuda::LogitChange>(changes_at));
  p.unchanged = scratch_.sample_unchanged.as<float>();
  p.results = scratch_.sample_results.as<cuda::SampleResult>();
  p.tops = scratch_.sample_tops.as<cuda::TopToken>();
  p.logits_stride = logits.row_stride;
  p.rows = static_cast<int32_t>(count);
  launch(cuda::kSamplerKernel, cuda::sampler_launch(p), p);
}

}  // namespace deltad
