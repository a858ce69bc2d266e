// What a rank with a GPU of its own does for a sum, or to bring logits together: its launches after
// each time that all ranks have come so far. Pure functions.
#pragma once

#include <span>
#include <vector>

#include "backend/ops.h"
#include "kernels/cuda/sum_parts.h"
#include "tensor/tensor_view.h"

namespace deltad {

// Bytes of a part from which its rows are divided among more than two ranks. Not measured: where
// reading seven parts over NVLink takes longer than meeting once more.
constexpr int64_t kLargePart = 256 << 10;

// The launch that gives the first rows of out [M, N] the sum of those of the parts, whose rows are
// part_stride apart; the last columns' padding to 4 included.
cuda::SumPartsParams sum_of_parts(TensorView out, int64_t rows, std::span<const float* const> parts,
                                  int64_t part_stride, Epilogue epilogue);

// A call of Communicator: all_reduce, or collect.
struct RankCall {
  TensorView out, part;
  Epilogue epilogue = Epilogue::kStore;
  bool collects = false;
};

struct RankTurn {
  bool waits = true;  // for what the other ranks have ordered before they came
  std::vector<cuda::SumPartsParams> launches = {};
};

// parts: of all ranks. Every rank gets as many turns.
std::vector<RankTurn> turns_of(const RankCall& call, int rank, std::span<const TensorView> parts);

}  // namespace deltad
