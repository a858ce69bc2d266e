// Reads a variant file's tensors once, in large blocks, by several threads, and checks on the way
// what the header cannot tell: finite values, padding bits, the digest. Used by the loader, by
// verify and by apply.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "delta/delta_file.h"
#include "model/loader.h"

namespace deltad {

// Receives checked blocks; tensors in any order and at once from several threads, the rows of one
// tensor in order. Used only with a weight table.
class DeltaSink {
 public:
  virtual ~DeltaSink() = default;
  // bits [count, ⌈d_in/8⌉]
  virtual Status sign_rows(const std::string& weight, int level, int64_t first, int64_t count,
                           const uint8_t* bits) = 0;
  // alpha [count]: 1, or one a row
  virtual Status alpha(const std::string& weight, int level, int64_t count, const float* alpha) = 0;
  // values fp32 [count, columns], as stored
  virtual Status dense_rows(const std::string& weight, int64_t first, int64_t count,
                            const float* values) = 0;
};

struct DeltaReadOptions {
  const WeightTable* table = nullptr;  // of the base; null: no padding check, no sink
  DeltaSink* sink = nullptr;
  int threads = 1;
  const std::atomic<bool>* cancelled = nullptr;  // polled between blocks; kCancelled
  Progress progress;
};

// With a table, check_shapes() comes first. OK means that the header's digest is verified.
Status read_delta(const DeltaFile& delta, const DeltaReadOptions& options);

}  // namespace deltad
