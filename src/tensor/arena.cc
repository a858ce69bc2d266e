#include "tensor/arena.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "base/check.h"

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace deltad {
namespace {

// Populated at a time: the call cannot be interrupted.
constexpr size_t kPopulateBytes = 8 * kHugePageBytes;

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

Status no_memory(size_t bytes) {
  return resource_exhausted(fmt::format("cannot allocate {} bytes of memory", bytes));
}

// For systems that cannot populate: writes to each page what it holds.
void touch(char* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += page_bytes()) {
    volatile char* page = data + at;
    *page = *page;
  }
}

}  // namespace

ArenaPlan::Place ArenaPlan::add(size_t bytes) {
  const Place place{end_, bytes};
  end_ = round_up(end_ + bytes, kArenaAlignment);
  return place;
}

// The end behind the last whole huge page is in small pages: rounding it up would cost a megabyte a
// variant on average.
size_t ArenaPlan::bytes() const { return round_up(end_, page_bytes()); }

Result<Arena> Arena::make(const ArenaPlan& plan) {
  Arena arena;
  const size_t bytes = plan.bytes();
  if (bytes == 0) return arena;
  if (bytes > SIZE_MAX / 2) return no_memory(bytes);
  // More than is needed, to cut a piece that begins where a huge page can.
  const size_t slack = bytes >= kHugePageBytes ? kHugePageBytes : 0;
  void* mapped =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return no_memory(bytes);
  char* begin = static_cast<char*>(mapped);
  if (slack > 0) {
    const size_t before =
        (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
    if (before > 0) munmap(begin, before);
    begin += before;
    if (before < slack) munmap(begin + bytes, slack - before);
    madvise(begin, bytes, MADV_HUGEPAGE);  // where there are none, small pages do
  }
  arena.data_ = begin;
  arena.bytes_ = bytes;
  return arena;
}

Status Arena::populate() {
  return populate(kPopulateBytes, [] { return Status(); });
}

Status Arena::populate(const std::function<Status()>& after_each) {
  return populate(kHugePageBytes, after_each);
}

Status Arena::populate(size_t step, const std::function<Status()>& after_each) {
  for (size_t at = 0; at < bytes_; at += step) {
    const size_t bytes = std::min(step, bytes_ - at);
    int failed = 0;
    while ((failed = madvise(data_ + at, bytes, MADV_POPULATE_WRITE)) != 0 && errno == EINTR) {
    }
    if (failed != 0 && errno != EINVAL)
      return resource_exhausted(fmt::format("cannot allocate {} bytes of memory: {}", bytes_,
                                            std::generic_category().message(errno)));
    if (failed != 0) touch(data_ + at, bytes);
    RETURN_IF_ERROR(after_each());
  }
  return {};
}

MemoryPiece Arena::at(ArenaPlan::Place place) const {
  CHECK(place.offset <= bytes_ && place.bytes <= bytes_ - place.offset, "outside the arena");
  return {data_ + place.offset, place.bytes};
}

void Arena::reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

void Arena::swap(Arena& other) {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

}  // namespace deltad
