// A weight and variants of it (DecodeCase makes and repacks them), run through the prefill kernels
// on the emulated device or as PTX.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "kernels/cuda/linear_prefill.h"
#include "kernels/cuda/linear_prefill_apart.h"
#include "kernels/cuda/linear_prefill_range.h"
#include "tests/kernels/cuda/decode_case.h"

namespace deltad::cuda {

class PrefillCase {
 public:
  explicit PrefillCase(WeightShape shape, uint32_t seed = 1, Launcher launcher = &emulate);

  DecodeCase& weight() { return weight_; }
  const WeightRange& range() const { return range_; }
  // The slot's entries of LinearPrefillParams::apart.
  std::vector<uint8_t> apart(int32_t slot) const;

  struct Call {
    LinearPrefillEpilogue epilogue = LinearPrefillEpilogue::kStore;
    const std::vector<float>* initial = nullptr;
    emulator::Options options = {};
  };
  // `kernel`: for at least as many levels as the groups' variants have.
  DecodeCase::Run run(const std::vector<float>& x, const std::vector<RowGroup>& groups,
                      const LinearPrefillKernel& kernel, const Call& call);
  DecodeCase::Run run(const std::vector<float>& x, const std::vector<RowGroup>& groups,
                      const LinearPrefillKernel& kernel) {
    return run(x, groups, kernel, Call());
  }

  // What the oracle says of a row before the epilogue, and how far from it fp16 and fp32 may be.
  DecodeCase::Expected expected(const float* x, int32_t slot);

 private:
  // Of each output and column: how large W + Σ α·S is, and how far fp16 is from it.
  struct Rounding {
    std::vector<float> size, residue;  // [outputs, columns]
  };
  const Rounding& rounding(int32_t slot);

  DecodeCase weight_;
  const Launcher launcher_;
  std::vector<ExponentCounts> counts_;
  WeightRange range_;
  std::map<int32_t, Rounding> roundings_;  // by slot
};

// Every output of every row within the bound that follows from the row's and the weight's norms.
// Signs of a small α are less than what it allows for the rounding of W·x, and cannot be looked at
// apart from it, as those of the decode kernel can: here they are in the same sums in fp32, either
// added to W before its product or as terms between W's, so no row of the base has the same
// rounding. prefill_delta_error measures them, in the norm of many outputs.
void expect_oracle(PrefillCase& c, const std::vector<float>& x, const std::vector<RowGroup>& groups,
                   const PrefillCase::Call& call, const std::vector<float>& out);

// Rounded to fp16, to nearest, ties to even.
double rounded_to_f16(double v);

}  // namespace deltad::cuda
