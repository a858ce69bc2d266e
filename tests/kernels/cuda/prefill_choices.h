// Batches for the prefill kernels: what the pairwise covering choices of decode_choices.h mean
// here. For the emulator's tests and those of the PTX.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/decode_choices.h"
#include "tests/kernels/cuda/prefill_case.h"

namespace deltad::cuda {

// By mma; by wgmma, 128 rows, 256 rows, and 128 rows of 192 outputs.
enum class PrefillFamily : uint8_t { kMma, kWgmma128, kWgmma256, kWgmma192 };
// The family's kernel for so many levels; of the last, which has one at most, wgmma128's.
LinearPrefillKernel prefill_kernel(PrefillFamily family, int32_t levels);
// The same in the largest clusters of at most so many blocks that all have outputs.
LinearPrefillKernel in_clusters(LinearPrefillKernel kernel, int32_t outputs, int32_t most);

// Of long rows no more than 33 are run: a choice of more is that of 33 again, its other values
// aside, which meet each other in many choices.
bool repeats_another(const Choice& choice);
// Runs the choice's batch and compares it with the oracle.
void expect_prefill_choice(const Choice& choice, PrefillFamily family, uint32_t seed,
                           const Launcher& launcher = &emulate);

// What those choices leave out of long rows: more of them than a tile has, of several variants, on
// a narrow slice of the outputs.
void expect_many_long_rows(PrefillFamily family, int32_t columns,
                           const Launcher& launcher = &emulate);

// ‖(y − Wx) − αSx‖ over ‖αSx‖ of each part of the weight, for a variant without padding.
std::vector<double> prefill_part_errors(PrefillCase& c, int32_t slot,
                                        const LinearPrefillKernel& kernel);
// The same for one variant whose α is so much of mean |W|. Each level's α is a
// third of the one's before: of four, the last is 3.5 % of the norm.
double prefill_delta_error(PrefillFamily family, double alpha, int32_t levels = 1,
                           const Launcher& launcher = &emulate);
// What the path owes is 5 % at α = 1 % of mean |W|; what is reached, there and below. At 0.5 % and
// below W and α·S are multiplied apart, and what is left is the rounding of their common sum in
// fp32.
struct DeltaBound {
  double alpha, bound;
};
constexpr DeltaBound kPrefillDeltaBounds[] = {{0.03, 0.01},  {0.01, 0.05},  {7e-3, 0.05},
                                              {5e-3, 0.001}, {1e-3, 0.002}, {1e-4, 0.02},
                                              {1e-5, 0.1}};

}  // namespace deltad::cuda
