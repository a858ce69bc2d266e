// How a variant file's data is read: in the file's order, in stretches of at most 2 MiB, which are
// hashed and packed while they are in a cache. A thread takes a chunk at a time: stretches that
// follow each other and hold whole parts as the digest knows them (4 MiB of a tensor, or what is
// left of it), so that each part is hashed by one thread. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace deltad {

constexpr int64_t kStretchBytes = int64_t{2} << 20;
// Pieces of a load that is to disturb nobody: some microseconds of computing each.
constexpr int64_t kShortPieceBytes = int64_t{64} << 10;

// Bytes of one tensor within a stretch.
struct ReadPiece {
  int32_t tensor;  // of ReadPlan::tensors
  int64_t begin;   // in the tensor; a multiple of the plan's piece_bytes
  int64_t bytes;
};

// Pieces [first_piece, end_piece), which follow each other in the file.
struct ReadStretch {
  int64_t offset;  // in the file
  int64_t bytes;
  int64_t first_piece, end_piece;
};

struct ReadChunk {
  int64_t bytes;
  int64_t first_stretch, end_stretch;
};

struct ReadPlan {
  struct Tensor {
    const std::string* name;
    const SafetensorsEntry* entry;
  };
  std::vector<Tensor> tensors;  // in the file's order
  std::vector<ReadPiece> pieces;
  std::vector<ReadStretch> stretches;
  std::vector<ReadChunk> chunks;
  int64_t bytes = 0;  // in all
};

// Refers to the file's entries. piece_bytes: of a piece at most; divides kStretchBytes.
ReadPlan plan_reading(const SafetensorsFile& file, int64_t piece_bytes = kStretchBytes);

}  // namespace deltad
