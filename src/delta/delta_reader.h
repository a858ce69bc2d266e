// Reads a variant file's tensors once, in large pieces, by several threads, and checks on the way
// what the header cannot tell: finite values, padding bits, the digest. What is handed on is made
// of the very bytes that were hashed. Used by the loader, by verify and by whatever
// reads a variant as a fine-tune.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "delta/adapter_factors.h"
#include "delta/delta_file.h"
#include "io/rate_limit.h"
#include "model/loader.h"

namespace deltad {

// Receives checked blocks, at once from several threads, in any order. Blocks of rows begin at
// multiples of kSinkRows and have as many rows, or a multiple, or end with the tensor. Used only
// with a weight table.
constexpr int64_t kSinkRows = 16;
class DeltaSink {
 public:
  virtual ~DeltaSink() = default;
  // bits [count, ⌈d_in/8⌉]
  virtual Status sign_rows(const std::string& weight, int level, int64_t first, int64_t count,
                           const uint8_t* bits) = 0;
  // alpha [count]: 1, or one a row
  virtual Status alpha(const std::string& weight, int level, int64_t count, const float* alpha) = 0;
  virtual Status low_rank(const std::string& weight, const AdapterFactors& factors) = 0;
  // values [count, columns] of a float type, as stored
  virtual Status dense_rows(const std::string& weight, int64_t first, int64_t count, DType type,
                            const void* values) = 0;
};

// Reads in flight: enough that a disk always has some while others are being hashed and packed.
constexpr int kReadThreads = 8;

struct DeltaReadOptions {
  const WeightTable* table = nullptr;  // of the base; null: no padding check, no sink
  DeltaSink* sink = nullptr;
  int threads = kReadThreads;                    // each with 4 MiB of staging
  int ranks = 1;                                 // that read a part of the file each
  const std::atomic<bool>* cancelled = nullptr;  // polled between reads; kCancelled
  RateLimit* rate = nullptr;
  Progress progress;
};

// With a table, check_shapes() comes first. OK means that the header's digest is verified and that
// the file did not change since it was opened; if it did, that is the error (kUnavailable),
// whatever else was found.
Status read_delta(const DeltaFile& delta, const DeltaReadOptions& options);

}  // namespace deltad
