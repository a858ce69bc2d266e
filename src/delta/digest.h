// The digest of a variant file: its identity. XXH3-128 (seed 0) over, for each tensor in byte order
// of its name: the name, a zero byte, the type, a zero byte, the shape as "d0,d1", a zero byte, and
// the canonical XXH3-128 of each 4 MiB of its bytes. Parts are hashed where the bytes pass by, in
// any order of tensors and by any thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltad {

constexpr int64_t kDigestPartBytes = int64_t{4} << 20;
using PartHash = std::array<uint8_t, 16>;  // canonical XXH3-128

// Hashes one tensor's bytes (or one part's), fed in order in pieces of any size; after finish(),
// the next one's. One thread at a time.
class TensorHasher {
 public:
  TensorHasher();
  ~TensorHasher();
  TensorHasher(const TensorHasher&) = delete;
  TensorHasher& operator=(const TensorHasher&) = delete;

  void update(const void* data, int64_t bytes);
  std::vector<PartHash> finish();

 private:
  void close_part();
  struct State;
  std::unique_ptr<State> state_;
  int64_t in_part_ = 0;
  std::vector<PartHash> parts_;
};

struct HashedTensor {
  DType dtype;
  Shape shape;
  std::vector<PartHash> parts;
};

// 32 lower-case hex digits. By name, in byte order.
std::string variant_digest(const std::map<std::string, HashedTensor>& tensors);

}  // namespace deltad
