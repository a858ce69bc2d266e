// How a variant file's data is read: in the file's order, in chunks of a few MiB. A chunk is made
// of parts as the digest knows them (4 MiB of one tensor, or what is left of it), so that each can
// be hashed by itself. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace deltad {

struct ReadPart {
  int32_t tensor;  // of ReadPlan::tensors
  int64_t begin;   // in the tensor; a multiple of kDigestPartBytes
  int64_t bytes;
};

// Parts [first_part, end_part), which follow each other in the file.
struct ReadChunk {
  int64_t offset;  // in the file
  int64_t bytes;
  int64_t first_part, end_part;
};

struct ReadPlan {
  struct Tensor {
    const std::string* name;
    const SafetensorsEntry* entry;
  };
  std::vector<Tensor> tensors;  // in the file's order
  std::vector<ReadPart> parts;
  std::vector<ReadChunk> chunks;
  int64_t bytes = 0;          // in all
  int64_t largest_chunk = 0;  // less than 2 · kDigestPartBytes
};

// Refers to the file's entries.
ReadPlan plan_reading(const SafetensorsFile& file);

}  // namespace deltad
