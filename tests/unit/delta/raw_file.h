// A safetensors file as plain values that a test can change and write again.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "delta/digest.h"
#include "io/safetensors.h"

namespace deltad::testing {

struct RawTensor {
  DType dtype;
  Shape shape;
  std::string bytes;

  bool operator==(const RawTensor&) const = default;
};

struct RawFile {
  std::map<std::string, std::string> metadata;
  std::map<std::string, RawTensor> tensors;
};

inline RawFile read_raw(const std::string& path) {
  RawFile raw;
  auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (!file.ok()) return raw;
  raw.metadata = file->metadata();
  for (const auto& [name, entry] : file->tensors()) {
    RawTensor tensor{entry.dtype, entry.shape, std::string(static_cast<size_t>(entry.bytes), 0)};
    EXPECT_TRUE(file->read(entry, 0, entry.bytes, tensor.bytes.data()).ok());
    raw.tensors.emplace(name, tensor);
  }
  return raw;
}

inline std::string digest_of(const RawFile& raw) {
  std::map<std::string, HashedTensor> hashed;
  for (const auto& [name, tensor] : raw.tensors) {
    TensorHasher hasher;
    hasher.update(tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()));
    hashed.emplace(name, HashedTensor{tensor.dtype, tensor.shape, hasher.finish()});
  }
  return variant_digest(hashed);
}

inline void write_raw(const std::string& path, const RawFile& raw) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const auto& [name, tensor] : raw.tensors)
    tensors.push_back({name, tensor.dtype, tensor.shape});
  auto writer = SafetensorsWriter::create(path, raw.metadata, tensors);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const auto& [name, tensor] : raw.tensors)
    ASSERT_TRUE((*writer)
                    ->write(name, 0, tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()))
                    .ok());
  const Status finished = (*writer)->finish();
  ASSERT_TRUE(finished.ok()) << finished.message();
}

}  // namespace deltad::testing
