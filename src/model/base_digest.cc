// The identity of a base's values, whatever it is stored in: XXH3-128 (seed 0) over, for each
// tensor in byte order of its Hugging Face name: the name, a zero byte, the shape as "d0,d1", a
// zero byte, and its bf16 bytes, all of them up to 256 KiB, else 64 blocks of 4 KiB that begin at
// the even offsets ⌊i(size−4096)/63⌋.
#include <fmt/core.h>
#include <xxhash.h>

#include <memory>
#include <vector>

#include "model/checkpoint.h"

namespace deltad {
namespace {

constexpr int64_t kWholeBytes = int64_t{256} << 10;
constexpr int64_t kBlockBytes = 4096;
constexpr int64_t kBlocks = 64;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

class Hash {
 public:
  Hash() : state_(XXH3_createState()) {
    CHECK(state_ != nullptr, "no memory for a hash state");
    XXH3_128bits_reset(state_.get());
  }
  void add(const void* data, size_t bytes) { XXH3_128bits_update(state_.get(), data, bytes); }
  void add_text(const std::string& text) { add(text.c_str(), text.size() + 1); }  // and a zero byte
  std::string hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

// Adds bytes [begin, begin + bytes) of a tensor in bf16, both even, through the rows that hold
// them.
Status add_bytes(const Checkpoint& checkpoint, const std::string& name, int64_t columns,
                 int64_t begin, int64_t bytes, std::vector<uint16_t>* rows, Hash* hash) {
  if (bytes == 0) return {};
  const int64_t first = begin / 2 / columns;
  const int64_t last = (begin + bytes - 1) / 2 / columns;
  rows->resize(static_cast<size_t>((last - first + 1) * columns));
  RETURN_IF_ERROR(checkpoint.read_rows_bf16(name, first, last - first + 1, rows->data()));
  hash->add(rows->data() + (begin / 2 - first * columns), static_cast<size_t>(bytes));
  return {};
}

}  // namespace

Result<std::string> base_digest(const Checkpoint& checkpoint) {
  Hash hash;
  std::vector<uint16_t> rows;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
    hash.add_text(name);
    std::string sizes;
    for (int i = 0; i < tensor.shape.rank(); ++i)
      sizes += fmt::format("{}{}", i ? "," : "", tensor.shape[i]);
    hash.add_text(sizes);

    const int64_t size = tensor.shape.count() * 2;
    if (size <= kWholeBytes) {
      RETURN_IF_ERROR(add_bytes(checkpoint, name, columns, 0, size, &rows, &hash));
      continue;
    }
    for (int64_t i = 0; i < kBlocks; ++i) {
      const int64_t begin = i * (size - kBlockBytes) / (kBlocks - 1) / 2 * 2;
      RETURN_IF_ERROR(add_bytes(checkpoint, name, columns, begin, kBlockBytes, &rows, &hash));
    }
  }
  return hash.hex();
}

}  // namespace deltad
