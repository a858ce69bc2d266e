// A model without weights for tests of the engine. Its keys and values are the token ids and the
// variant that computed them (and, if roles differ, the row's role), written into the KV blocks; a
// row's logits are a function of all that the row reads back through its block table. So any mix-up
// of blocks, positions, variants, rows or roles changes the tokens that come out.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "kv/kv_cache.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/engine/fake_swap.h"
#include "tests/unit/engine/fake_variant.h"

namespace deltad::testing {

constexpr int64_t kVocab = 101;

class FakeModel final : public ModelRunner {
 public:
  struct Cell {
    int32_t token;
    uint32_t variant;  // of a row that counts as generated: plus kGenerated
  };
  static constexpr uint32_t kGenerated = 1u << 31;
  static KvCache make_kv(int32_t blocks, bool prefix_cache, int32_t block_tokens = 16) {
    const KvGeometry geometry{1, blocks, block_tokens,
                              static_cast<int64_t>(sizeof(Cell)) * block_tokens};
    auto memory = Buffer::cpu(static_cast<size_t>(geometry.bytes()));
    CHECK(memory.ok(), "no memory");
    return KvCache(std::move(*memory), geometry, prefix_cache);
  }

  explicit FakeModel(int32_t slots = 64, int32_t host_blocks = 0) : slots_(slots) {
    swap.host_blocks = host_blocks;
  }

  Result<Logits> forward(const Batch& batch, const KvView& kv,
                         std::span<const VariantWeights* const> slots) override {
    check_shape(batch, slots);
    last_batch = batch;
    last_slots.assign(slots.begin(), slots.end());
    ++steps;
    if (before_step) {
      const Status status = before_step(batch);
      if (!status.ok()) return status;
    }
    rows_.clear();
    Logits logits;
    size_t next = 0;
    for (const SequenceSpan& span : batch.spans) {
      const uint32_t tag = tag_of(slot_of(batch, span.first_row), slots);
      for (int32_t row = span.first_row; row < span.end_row; ++row) {
        const int32_t position = span.first_position + row - span.first_row;
        Cell& cell = cell_of(kv, span, position);
        cell = {batch.ids[static_cast<size_t>(row)],
                tag + (roles_differ() && span.generated ? kGenerated : 0)};
        if (next == batch.logit_rows.size() || batch.logit_rows[next] != row) continue;
        ++next;
        rows_.push_back(logits_of(kv, span, position, tag));
        logits.vocab.push_back(kVocab);
      }
    }
    CHECK(next == batch.logit_rows.size(), "logit rows do not ascend");
    flat_.clear();
    for (const auto& row : rows_) flat_.insert(flat_.end(), row.begin(), row.end());
    if (spoil) spoil(batch, flat_);
    logits.values =
        matrix_view(flat_.data(), DType::kF32, static_cast<int64_t>(rows_.size()), kVocab, kVocab);
    return logits;
  }
  bool roles_differ() const override { return roles_of_device; }
  int32_t most_sampled_top() const override { return most_sampled_top_of_device; }
  // What a device is asked for, done by the host's sampler.
  Result<std::vector<SampleOutcome>> forward_sampled(
      const Batch& batch, const KvView& kv, std::span<const VariantWeights* const> slots,
      std::span<const SampleRequest> wanted, const std::function<void()>& meanwhile) override {
    ASSIGN_OR_RETURN(const Logits logits, forward(batch, kv, slots));
    CHECK(wanted.size() == logits.vocab.size(), "a request for each row of logits");
    if (meanwhile) meanwhile();
    if (!late_failure.ok()) return late_failure;
    std::vector<SampleOutcome> out;
    for (size_t i = 0; i < wanted.size(); ++i)
      out.push_back(sample_as_device(wanted[i], logits.values.row<float>(static_cast<int64_t>(i))));
    sampled_rows += static_cast<int64_t>(wanted.size());
    return out;
  }
  int32_t max_slots() const override { return slots_; }
  KvSwap* kv_swap() override { return swap.host_blocks > 0 ? &swap : nullptr; }
  int32_t host_blocks() const override { return swap.host_blocks; }
  void parallel_for(int64_t n, void (*work)(void* context, int64_t i), void* context) override {
    for (int64_t i = 0; i < n; ++i) work(context, i);
  }

  std::function<Status(const Batch&)> before_step;
  std::function<void(const Batch&, std::vector<float>&)> spoil;
  int32_t most_sampled_top_of_device = -1;
  bool roles_of_device = false;  // roles_differ
  int64_t sampled_rows = 0;
  Status late_failure;  // of sampling, when the next step is planned
  FakeSwap swap;        // of no blocks: there is none
  Batch last_batch;
  std::vector<const VariantWeights*> last_slots;
  int64_t steps = 0;

 private:
  SampleOutcome sample_as_device(const SampleRequest& wanted, float* row) const {
    CHECK(wanted.top <= most_sampled_top_of_device, "more top entries than the device has");
    SamplingParams params;
    params.temperature = wanted.temperature;
    params.top_p = wanted.top_p;
    params.min_p = wanted.min_p;
    params.top_k = wanted.top_k;
    params.seed = wanted.seed;
    params.repetition_penalty = wanted.repetition_penalty;
    params.frequency_penalty = wanted.frequency_penalty;
    params.presence_penalty = wanted.presence_penalty;
    TokenCounts counts;
    std::set<int32_t> changed;
    for (const SampleChange& c : wanted.changes) {
      CHECK(changed.insert(c.token).second, "a token that is changed twice");
      params.logit_bias.push_back({c.token, c.bias});
      if (c.count >= 0) counts.add_prompt(c.token);
      for (int32_t i = 0; i < c.count; ++i) counts.add_output(c.token);
    }
    SampleInput input;
    input.logits = row;
    input.vocab = kVocab;
    input.params = &params;
    input.counts = &counts;
    input.choice = wanted.choice;
    input.position = wanted.position;
    input.top = wanted.top;
    Sampled sampled;
    if (wanted.given >= 0) {
      const Result<Scored> scored = score(row, kVocab, wanted.given, wanted.top);
      if (scored.ok())
        sampled.scored = *scored;
      else
        sampled.status = scored.status();
      sampled.token = wanted.given;
    } else {
      sampled = sample(input);
    }
    SampleOutcome out{SampleOutcome::State::kOk, sampled.token, sampled.scored.logprob, {}};
    if (!sampled.status.ok()) out.state = SampleOutcome::State::kNotFinite;
    for (const TokenLogprob& t : sampled.scored.top) out.top.push_back({t.id, t.logprob});
    return out;
  }
  static uint64_t mix(uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdull;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ull;
    return h ^ h >> 33;
  }
  static int32_t slot_of(const Batch& batch, int32_t row) {
    for (const RowGroup& g : batch.groups)
      if (row >= g.first_row && row < g.end_row) return g.slot;
    CHECK(false, "a row without a group");
    return 0;
  }
  static uint32_t tag_of(int32_t slot, std::span<const VariantWeights* const> slots) {
    return slot == kBaseSlot
               ? 1u
               : static_cast<const FakeVariantWeights*>(slots[static_cast<size_t>(slot)])->tag;
  }
  static Cell& cell_of(const KvView& kv, const SequenceSpan& span, int32_t position) {
    const int32_t block = span.blocks[position / kv.block_tokens];
    auto* cells = reinterpret_cast<Cell*>(static_cast<char*>(kv.data) + block * kv.block_bytes);
    return cells[position % kv.block_tokens];
  }
  static std::vector<float> logits_of(const KvView& kv, const SequenceSpan& span, int32_t position,
                                      uint32_t tag) {
    uint64_t h = tag;
    for (int32_t p = 0; p <= position; ++p) {
      const Cell& cell = cell_of(kv, span, p);
      h = mix(h * 31 + static_cast<uint64_t>(cell.token) * 0x9e3779b97f4a7c15ull + cell.variant +
              static_cast<uint64_t>(p));
    }
    std::vector<float> out;
    for (int64_t i = 0; i < kVocab; ++i)
      out.push_back(static_cast<float>(mix(h + static_cast<uint64_t>(i)) % 4096) / 512.0f - 4.0f);
    return out;
  }
  void check_shape(const Batch& batch, std::span<const VariantWeights* const> slots) const {
    const auto rows = static_cast<int32_t>(batch.ids.size());
    CHECK(static_cast<int32_t>(slots.size()) <= slots_, "more slots than there are");
    int32_t at = 0, last_slot = kBaseSlot - 1;
    for (const RowGroup& g : batch.groups) {
      CHECK(g.first_row == at && g.end_row > at, "groups do not cover the rows in order");
      CHECK(g.slot > last_slot && g.slot < static_cast<int32_t>(slots.size()),
            "a slot stands twice, or is not bound");
      last_slot = g.slot;
      at = g.end_row;
    }
    CHECK(at == rows, "groups do not cover the rows");
    at = 0;
    for (const SequenceSpan& s : batch.spans) {
      CHECK(s.first_row == at && s.end_row > at, "spans do not cover the rows in order");
      CHECK(slot_of(batch, s.first_row) == slot_of(batch, s.end_row - 1),
            "a sequence lies in two groups");
      at = s.end_row;
    }
    CHECK(at == rows, "spans do not cover the rows");
  }

  const int32_t slots_;
  std::vector<std::vector<float>> rows_;
  std::vector<float> flat_;
};

}  // namespace deltad::testing
