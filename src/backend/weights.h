// What a weight is, for every backend: its parts, shape and place. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace deltad {

using WeightId = int32_t;

enum class WeightKind { kMatrix, kEmbedding, kVector };

// One checkpoint tensor inside a (maybe fused) weight.
struct WeightPart {
  std::string name;  // Hugging Face name, with ".weight"
  int64_t rows;      // d_out of this part
};

struct WeightSpec {
  WeightKind kind;
  std::vector<WeightPart> parts;  // in order
  int64_t columns;                // d_in; 1 for a vector
  // Fused parts normally follow each other, each padded with zero rows to a multiple of 16, so that
  // part p of the output begins at column part_offset(p). Interleaved: tiles of 16 rows of the two
  // parts take turns (gate 0-15, up 0-15, gate 16-31, …), which lets one thread hold a gate and its
  // up.
  bool interleaved = false;
  WeightId alias =
      -1;  // ≥ 0: the base keeps no copy of its own, but uses that weight (a tied head)

  static int64_t pad(int64_t rows) { return (rows + 15) / 16 * 16; }
  // First output column of part p (not interleaved).
  int64_t part_offset(int p) const {
    int64_t at = 0;
    for (int i = 0; i < p; ++i) at += pad(parts[static_cast<size_t>(i)].rows);
    return at;
  }
  // All rows, padding included.
  int64_t rows() const { return part_offset(static_cast<int>(parts.size())); }
};

// What a variant will hold, known before any of its values is read: enough to make its memory.
struct VariantContent {
  struct Signs {
    WeightId weight;
    int levels;  // the most that a part of it has
  };
  struct Dense {
    WeightId weight;
    int part;
    int64_t rows;  // of the part; an embedding or head may have more than the base
  };
  struct LowRank {
    WeightId weight;
    int part;
    int64_t rank;
  };
  std::vector<Signs> signs;            // one a weight; in any order
  std::vector<Dense> dense;            // one a part
  std::vector<LowRank> low_rank = {};  // one a part; of matrices and the embedding
};

}  // namespace deltad
