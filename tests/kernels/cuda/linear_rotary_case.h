// The decode kernel with rotary embedding and the cache's append as its epilogue, and the same by a
// kernel each: the same bits are wanted. For the emulator's tests and those of the PTX.
#pragma once

#include <string>
#include <vector>

#include "tests/kernels/cuda/decode_case.h"
#include "tests/kernels/cuda/rope_append_case.h"

namespace deltad::cuda {

struct LinearRotaryCase {
  // `columns` of the layer's input; levels of signs of a variant that most rows have. At least
  // seven rows.
  LinearRotaryCase(int32_t heads, int32_t kv_heads, int32_t head_dim, int32_t columns,
                   int32_t levels, const Launcher& launcher = &emulate, int32_t rows = 7)
      : rope(heads, kv_heads, head_dim),
        linear({{heads * head_dim, kv_heads * head_dim, kv_heads * head_dim}, columns}, 3,
               launcher) {
    for (int32_t position = 18; rope.rows() < rows; ++position)
      rope.places.push_back({position, 0});
    rope.qkv.assign(static_cast<size_t>(rope.rows() * rope.columns()), kBefore);
    const int32_t slot = linear.add_variant(levels, 2e-3);
    x = linear.random_rows(rope.rows());
    groups = {{0, 1, -1}, {1, rope.rows(), slot}};
  }

  // The layer, then rope_append as `launch` runs it; "" or what is wrong.
  template <class LaunchKernel>
  std::string prepare(int32_t splits, LaunchKernel launch) {
    const DecodeCase::Run run = linear.run(x, groups, {.splits = splits});
    if (!run.report.ok()) return run.report.text();
    rope.qkv = run.out;
    want = rope.run(0, rope.rows(), launch);
    // k and v are not stored again, but in the cache.
    for (int32_t r = 0; r < rope.rows(); ++r) {
      for (int32_t c = rope.heads * rope.head_dim; c < rope.columns(); ++c) {
        want.qkv[static_cast<size_t>(r * rope.columns() + c)] = kBefore;
      }
    }
    rope.qkv.assign(rope.qkv.size(), kBefore);
    return "";
  }

  // Both in one launch.
  RopeAppendCase::Output run(int32_t splits, const emulator::Options& options,
                             emulator::Report* report) {
    return rope.run(0, rope.rows(), [&](const char*, const Launch&, const RopeAppendParams& p) {
      *report = linear
                    .run(x, groups,
                         {.epilogue = LinearEpilogue::kRotary,
                          .splits = splits,
                          .rope = &p,
                          .options = options})
                    .report;
    });
  }

  static constexpr float kBefore = 7;
  RopeAppendCase rope;
  DecodeCase linear;
  std::vector<float> x;
  std::vector<RowGroup> groups;
  RopeAppendCase::Output want;
};

}  // namespace deltad::cuda
