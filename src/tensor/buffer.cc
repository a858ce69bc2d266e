#include "tensor/buffer.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cstdlib>
#include <utility>

namespace deltad {
namespace {

constexpr size_t kMapFrom = size_t{1}
                            << 21;  // from 2 MiB on memory is mapped, and may use huge pages

void free_mapped(void* data, size_t bytes) { munmap(data, bytes); }
void free_aligned(void* data, size_t) { std::free(data); }

}  // namespace

Result<Buffer> Buffer::cpu(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes >= kMapFrom) {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
      return resource_exhausted(fmt::format("cannot allocate {} bytes of memory", bytes));
    madvise(data, bytes, MADV_HUGEPAGE);
    return Buffer(data, bytes, DeviceKind::kCpu, free_mapped);
  }
  const size_t rounded = (bytes + 63) / 64 * 64;
  void* data = std::aligned_alloc(64, rounded);
  if (data == nullptr)
    return resource_exhausted(fmt::format("cannot allocate {} bytes of memory", bytes));
  __builtin_memset(data, 0, rounded);
  return Buffer(data, bytes, DeviceKind::kCpu, free_aligned);
}

void Buffer::reset() {
  if (data_ != nullptr && free_ != nullptr) free_(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  free_ = nullptr;
}

void Buffer::swap(Buffer& other) {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(free_, other.free_);
}

}  // namespace deltad
