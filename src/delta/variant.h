// Variant: a loaded, immutable variant: identity, resident weights and what of text it brings.
// Shared by reference: the catalog holds one, and so does each request in flight, so replacing or
// removing a variant never pulls it away.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "io/file_stamp.h"

namespace deltad {

struct Variant {
  std::string name;  // as registered; for people. Never a key
  std::string
      digest;  // 32 hex digits: the identity. KV blocks and the prefix index are keyed by it
  std::shared_ptr<const VariantWeights> weights;  // null: it has left the device, and `image` is it
  std::shared_ptr<const VariantImage> image;
  int64_t vocab = 0;  // rows of its head
  size_t bytes = 0;   // resident
  std::string path;   // that it was read from
  FileStamp stamp;    // of what lay there, taken before it was read
};
using VariantRef = std::shared_ptr<const Variant>;  // null: the base

}  // namespace deltad
