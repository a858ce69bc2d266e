// Any bytes as a safetensors file: an error, or a file all of whose tensors can be read.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltad;
  const auto file = SafetensorsFile::open(
      FileReader::in_memory("fuzz", std::string(reinterpret_cast<const char*>(data), size)));
  if (!file.ok()) return 0;
  int64_t bytes = 0;
  for (const auto& [name, entry] : file->tensors()) {
    if (entry.shape.count() * static_cast<int64_t>(dtype_size(entry.dtype)) != entry.bytes) abort();
    std::vector<char> out(static_cast<size_t>(entry.bytes));
    if (!file->read(entry, 0, entry.bytes, out.data()).ok()) abort();
    bytes += entry.bytes;
  }
  if (bytes > static_cast<int64_t>(size)) abort();  // tensors do not overlap
  return 0;
}
