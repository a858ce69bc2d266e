// Attention's share of a step: rotary embedding, append and attention of one layer in the sizes of
// SmolLM2-135M, over as many layers' cache as the model has, so that decoding reads memory as it
// does in service. Checks a few rows against the oracle first.
//   bench_attention [--benchmark_filter=…]; $DELTAD_CPU_ISA chooses the instruction set.
#include "kernels/ref/attention.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/cpu_ops.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int kLayers = 30, kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr int kColumns = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int kBlockTokens = 16;
constexpr double kRelativeTolerance = 0.02;  // bf16 in queries, keys, values and weights

AttentionShape shape() {
  return {kHeads, kKvHeads, kHeadDim, 0, kHeads * kHeadDim, (kHeads + kKvHeads) * kHeadDim, 0.125f};
}

// Sequences of `context` positions whose last `rows` each are computed in a step.
class Step {
 public:
  Step(int threads, int sequences, int context, int rows)
      : isa_(*choose_isa("")),
        team_(threads),
        ops_(isa_, team_, weights_),
        context_(context),
        rows_(rows),
        blocks_a_sequence_((context + kBlockTokens - 1) / kBlockTokens),
        blocks_(blocks_a_sequence_ * sequences) {
    block_bytes_ = ops_.kv_block_bytes(shape(), kBlockTokens);
    cache_ = std::move(*Buffer::cpu(static_cast<size_t>(block_bytes_) * blocks_ * kLayers));
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    qkv_.resize(static_cast<size_t>(std::max(context, sequences * rows)) * kColumns);
    for (float& x : qkv_) x = normal(random);
    out_.resize(qkv_.size());
    for (int i = 0; i < blocks_; ++i) ids_.push_back(i);
    std::shuffle(ids_.begin(), ids_.end(), random);
    // No rotation, so that the check needs none.
    angles_.assign(static_cast<size_t>(context) * kHeadDim, 0.0f);
    for (size_t i = 0; i < angles_.size(); ++i) angles_[i] = i % kHeadDim < kHeadDim / 2;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int s = 0; s < sequences; ++s) {
        ops_.rope_append(qkv_view(context), shape(), angles_view(), kv(), layer,
                         std::vector<SequenceSpan>{{0, context, 0, blocks_of(s)}});
      }
    }
    for (int s = 0; s < sequences; ++s) {
      spans_.push_back({s * rows, (s + 1) * rows, context - rows, blocks_of(s)});
    }
  }

  void run(int layer) {
    const int rows = static_cast<int>(spans_.size()) * rows_;
    ops_.rope_append(qkv_view(rows), shape(), angles_view(), kv(), layer, spans_);
    ops_.attention(out_view(rows), qkv_view(rows), shape(), kv(), layer, spans_);
  }

  // Whether the first row of the first sequence agrees with the oracle.
  bool right() {
    run(0);
    const int length = context_ - rows_ + 1;
    double errors = 0, squares = 0;
    for (int head = 0; head < kHeads; ++head) {
      std::vector<std::vector<double>> keys, values;
      for (int t = 0; t < length; ++t) {
        // The last position was appended again from row 0.
        const float* row = qkv_.data() + (t == length - 1 ? 0 : t) * kColumns;
        const float* k = row + (kHeads + head / 3) * kHeadDim;
        keys.emplace_back(k, k + kHeadDim);
        values.emplace_back(k + kKvHeads * kHeadDim, k + (kKvHeads + 1) * kHeadDim);
      }
      const float* q = qkv_.data() + head * kHeadDim;
      const auto expected = ref::attend({q, q + kHeadDim}, keys, values, 0.125);
      for (int d = 0; d < kHeadDim; ++d) {
        const int c = head * kHeadDim + d;
        const double got = isa_ == Isa::kAvx512Bf16
                               ? bf16_to_f32(reinterpret_cast<uint16_t*>(out_.data())[c])
                               : out_[static_cast<size_t>(c)];
        const double want = expected[static_cast<size_t>(d)];
        errors += (got - want) * (got - want);
        squares += want * want;
      }
    }
    return std::sqrt(errors / squares) < kRelativeTolerance;
  }

  double kv_bytes() const {
    return static_cast<double>(spans_.size()) * blocks_a_sequence_ *
           static_cast<double>(block_bytes_);
  }

 private:
  const int32_t* blocks_of(int sequence) const {
    return ids_.data() + sequence * blocks_a_sequence_;
  }
  KvView kv() { return {cache_.data(), blocks_, kBlockTokens, block_bytes_}; }
  TensorView qkv_view(int rows) {
    return matrix_view(qkv_.data(), DType::kF32, rows, kColumns, kColumns);
  }
  TensorView angles_view() {
    return matrix_view(angles_.data(), DType::kF32, context_, kHeadDim, kHeadDim);
  }
  TensorView out_view(int rows) {
    return matrix_view(out_.data(), ops_.activation_type(), rows, kHeads * kHeadDim,
                       ops_.row_stride(kHeads * kHeadDim));
  }

  const Isa isa_;
  WorkerTeam team_;
  CpuWeights weights_;
  CpuOps ops_;
  const int context_, rows_, blocks_a_sequence_, blocks_;
  int64_t block_bytes_ = 0;
  Buffer cache_;
  std::vector<float> qkv_, out_, angles_;
  std::vector<int32_t> ids_;
  std::vector<SequenceSpan> spans_;
};

// A 512-token prompt in two chunks: ms a layer for both.
void prefill_512(benchmark::State& state) {
  const auto threads = static_cast<int>(state.range(0));
  Step first(threads, 1, 256, 256), second(threads, 1, 512, 256);
  if (!first.right() || !second.right()) state.SkipWithError("wrong result");
  int layer = 0;
  for (auto _ : state) {
    first.run(layer);
    second.run(layer);
    layer = (layer + 1) % kLayers;
  }
  // Products of the causal half, both matrices.
  state.counters["GFLOP/s"] = benchmark::Counter(4e-9 * kHeads * kHeadDim * 512 * 513 / 2,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void decode_1024(benchmark::State& state) {
  Step step(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), 1024, 1);
  if (!step.right()) state.SkipWithError("wrong result");
  int layer = 0;
  for (auto _ : state) {
    step.run(layer);
    layer = (layer + 1) % kLayers;
  }
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * step.kv_bytes(), benchmark::Counter::kIsIterationInvariantRate);
}

BENCHMARK(prefill_512)
    ->Arg(1)
    ->Arg(2)
    ->ArgName("threads")
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(decode_1024)
    ->ArgsProduct({{1, 2}, {1, 14}})
    ->ArgNames({"threads", "sequences"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace deltad

BENCHMARK_MAIN();
