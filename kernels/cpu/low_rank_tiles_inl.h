// Which tiles of a part lie in a run of the weight's tiles. In an anonymous namespace, because
// files of every instruction set include it.
#pragma once

#include <stdint.h>

#include "kernels/cpu/low_rank.h"

namespace deltad::cpu {
namespace {

struct TileRange {
  int64_t begin, end;  // of the part's tiles
};

inline TileRange tiles_of_part(const LowRankPart& part, int64_t tile, int64_t tiles) {
  // The part's tiles before tile t of the weight.
  const auto before = [&](int64_t t) {
    const int64_t n = (t - part.first_tile + (int64_t{1} << part.shift) - 1) >> part.shift;
    return n < 0 ? 0 : n > part.tiles ? int64_t{part.tiles} : n;
  };
  return {before(tile), before(tile + tiles)};
}

}  // namespace
}  // namespace deltad::cpu
