// Device memory: the buffers that a test made. Every access of a kernel is checked against them;
// between two buffers lies a gap that belongs to none. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_on_cpu/access_log.h"

namespace deltad::emulator {

enum class Access : uint8_t {
  kRead,       // inputs that do not change in a step: weights
  kFresh,      // inputs that the kernel before may have made
  kWrite,      // outputs and scratch; each element is one block's affair
  kMessage,    // blocks tell one another: a store is seen by others as late as the memory model
               // allows, that is once a release after it was acquired
  kShared,     // reads and writes; whoever made the range looks at them afterwards (`log`)
  kForbidden,  // nothing; the range's name says why
};

struct GlobalRange {
  std::string name;
  std::byte* base;
  size_t bytes;
  Access access;
  AccessLog* log = nullptr;  // of all accesses, if anyone wants to know
  ptrdiff_t alias = 0;       // from an address to where the bytes are
};

class GlobalMemory {
 public:
  static GlobalMemory& instance();
  void add(GlobalRange range);
  void remove(const std::byte* base);
  void set_access(const std::byte* base, Access access) { ranges_.at(base).access = access; }
  void set_name(const std::byte* base, std::string name) {
    ranges_.at(base).name = std::move(name);
  }
  // The range that holds all of [address, address + bytes), or null.
  const GlobalRange* find(const void* address, size_t bytes);
  const std::map<const std::byte*, GlobalRange>& ranges() const { return ranges_; }
  // For a fault's text: the nearest buffer at or below an address.
  std::string describe(const void* address) const;

 private:
  std::map<const std::byte*, GlobalRange> ranges_;  // by base
  const GlobalRange* last_ = nullptr;
};

// Where the memory of buffers comes from: the heap, unless a program that runs kernels on a card
// says otherwise before the first buffer is made.
void set_buffer_memory(std::byte* (*take)(size_t bytes), void (*give_back)(std::byte*));
struct GiveBackBuffer {
  void operator()(std::byte* memory) const;
};
using BufferMemory = std::unique_ptr<std::byte[], GiveBackBuffer>;
BufferMemory take_buffer(size_t bytes);  // poisoned

// An array on the device, with a gap on both sides. Elements that nobody set are poison: all bits
// set, which is NaN for floats.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer(std::string name, size_t count, Access access)
      : memory_(take_buffer(count * sizeof(T) + 3 * kGap)), count_(count) {
    const auto start = reinterpret_cast<uintptr_t>(memory_.get());
    base_ = memory_.get() + (kGap + (kGap - start % kGap) % kGap);
    GlobalMemory::instance().add({std::move(name), base_, count * sizeof(T), access});
  }
  DeviceBuffer(std::string name, const std::vector<T>& values, Access access = Access::kRead)
      : DeviceBuffer(std::move(name), values.size(), access) {
    if (count_ > 0) std::memcpy(base_, values.data(), count_ * sizeof(T));
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { GlobalMemory::instance().remove(base_); }

  // What a kernel wrote may be the input of others.
  void set_access(Access access) { GlobalMemory::instance().set_access(base_, access); }

  T* data() const { return reinterpret_cast<T*>(base_); }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data()[i]; }
  std::vector<T> values() const { return std::vector<T>(data(), data() + count_); }

 private:
  static constexpr size_t kGap = 256;  // also the alignment that cudaMalloc gives
  BufferMemory memory_;
  std::byte* base_;
  size_t count_;
};

}  // namespace deltad::emulator
