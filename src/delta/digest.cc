#include "delta/digest.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <new>
#include <utility>

namespace deltad {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using StatePtr = std::unique_ptr<XXH3_state_t, FreeState>;

StatePtr new_state() {
  StatePtr state(XXH3_createState());
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  return state;
}

PartHash canonical(const XXH3_state_t* state) {
  XXH128_canonical_t out;
  XXH128_canonicalFromHash(&out, XXH3_128bits_digest(state));
  PartHash hash;
  std::copy(std::begin(out.digest), std::end(out.digest), hash.begin());
  return hash;
}

}  // namespace

struct TensorHasher::State {
  StatePtr hash = new_state();
};

TensorHasher::TensorHasher() : state_(std::make_unique<State>()) {}
TensorHasher::~TensorHasher() = default;

void TensorHasher::update(const void* data, int64_t bytes) {
  const auto* at = static_cast<const uint8_t*>(data);
  while (bytes > 0) {
    const int64_t take = std::min(bytes, kDigestPartBytes - in_part_);
    XXH3_128bits_update(state_->hash.get(), at, static_cast<size_t>(take));
    in_part_ += take;
    at += take;
    bytes -= take;
    if (in_part_ == kDigestPartBytes) close_part();
  }
}

std::vector<PartHash> TensorHasher::finish() {
  if (in_part_ > 0) close_part();
  return std::exchange(parts_, {});
}

void TensorHasher::close_part() {
  parts_.push_back(canonical(state_->hash.get()));
  XXH3_128bits_reset(state_->hash.get());
  in_part_ = 0;
}

std::string variant_digest(const std::map<std::string, HashedTensor>& tensors) {
  const StatePtr state = new_state();
  const auto add = [&](const void* data, size_t bytes) {
    XXH3_128bits_update(state.get(), data, bytes);
  };
  for (const auto& [name, tensor] : tensors) {
    std::string head = name + '\0' + dtype_name(tensor.dtype) + '\0';
    for (int i = 0; i < tensor.shape.rank(); ++i)
      head += (i ? "," : "") + std::to_string(tensor.shape[i]);
    head += '\0';
    add(head.data(), head.size());
    for (const PartHash& part : tensor.parts) add(part.data(), part.size());
  }
  std::string hex;
  for (const uint8_t byte : canonical(state.get())) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace deltad
