// out[r] = the embedding of ids[r]: of the base's table or the row's variant's own, plus what the
// variant's low-rank factors say; zeros of a token that another rank has. Tables lie in base tiles
// (linear_tiles.h), as a tied head needs them; a row's 32 columns of a step are 64 bytes side by
// side. A block a row.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/low_rank.h"
#include "kernels/cuda/row_groups.h"

namespace deltad::cuda {

struct EmbedParams {
  const void* table;              // base tiles of [vocabulary, columns]
  const void* const* slot_table;  // [slots]: a variant's own tiles, or null
  const LowRankSlot* low_rank;    // [slots], or null: no variant has factors
  const RowGroups* groups;
  const int32_t* ids;  // [rows], below the row's vocabulary; negative: another rank's
  float* out;          // [rows, out_stride], rows 8-byte aligned
  int64_t out_stride;
  int32_t rows;
  int32_t columns;  // even
};

constexpr uint32_t kEmbedThreads = 256;
constexpr char kEmbedKernel[] = "deltad_embed";

inline Launch embed_launch(const EmbedParams& p) {
  return {{static_cast<uint32_t>(p.rows)}, {kEmbedThreads}, 0};
}

}  // namespace deltad::cuda
