// Batches for the decode kernel: choices of everything that a batch can be, pairwise covering, and
// the comparison with the fp64 oracle. For the emulator's tests and those of the PTX.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/kernels/cuda/decode_case.h"

namespace deltad::cuda {

// Every output of every row within the bound that follows from the row's and the weight's norms.
// Rounding of W·x alone may be more than what signs of a small α add. With `base`, what the rows
// gave without variants, nothing but the signs' own rounding is allowed beyond it; no row may have
// a weight of its own then.
void expect_oracle(const DecodeCase& c, const std::vector<float>& x,
                   const std::vector<RowGroup>& groups, const DecodeCase::Call& call,
                   const std::vector<float>& out, const std::vector<float>* base = nullptr);

// One choice of everything, as indices into lists: of numbers of rows, which each path has its own
// of, as many; of shapes and so on. Levels are 1 … 4.
using Choice = std::array<int, 7>;
enum Factor { kRows, kShape, kVariants, kLevels, kAlpha, kEpilogueFactor, kOneAlpha };
constexpr int32_t kVariantsList[] = {0, 1, 2, 4, 14};
constexpr double kAlphaList[] = {1e-6, 2e-4, 0.01, 1};
// SmolLM2 (576, 1536), 8B (4096, 14336) and 70B (8192, 28672) in narrow slices, shards of them,
// columns that fill no tile. All have an even number of 16 outputs, so that any can be gated.
const std::vector<WeightShape>& choice_shapes();
// So many variants as the choice says; every third has a level less than the others, which may be
// none. Their slots, the base's first.
std::vector<int32_t> add_variants(DecodeCase& c, int32_t count, const Choice& choice);

// Choices such that every two values of two factors meet in one.
std::vector<Choice> pairwise(uint32_t seed);

// Runs the choice's batch and compares it with the oracle.
void expect_choice(const Choice& choice, uint32_t seed, const Launcher& launcher = &emulate);

// More groups than a warp reads at once, of a row each, one with a weight of its own behind them.
void expect_many_groups(const Launcher& launcher = &emulate);

}  // namespace deltad::cuda
