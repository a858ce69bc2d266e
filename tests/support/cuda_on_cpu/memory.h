// Memory as kernels see it: checked loads and stores of global and of dynamic shared memory. There
// is no other way to shared memory: Shared<T> cannot be dereferenced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tests/support/cuda_on_cpu/where.h"

namespace deltad::emulator {

// Each ends the launch with a fault if the access is not right, and returns where the bytes are.
const std::byte* shared_read(size_t offset, size_t bytes, Where where);
std::byte* shared_write(size_t offset, size_t bytes, Where where);
// Bounds and alignment only: where an asynchronous copy will write.
std::byte* shared_target(size_t offset, size_t bytes, size_t alignment, Where where);
uint32_t shared_add(size_t offset, uint32_t value, Where where);
const std::byte* global_read(const void* address, size_t bytes, Where where);
std::byte* global_write(void* address, size_t bytes, Where where);
// Of a bulk copy: aligned to 16 bytes; of buffers that no message is in.
const std::byte* global_read_bulk(const void* address, size_t bytes, Where where);
// What a prefetch may name: aligned to 16 bytes, within a buffer. It is no access.
void global_bounds(const void* address, size_t bytes, Where where);
bool guard(bool condition, Where where);

}  // namespace deltad::emulator

namespace deltad::cuda {

using emulator::Where;

// An address in the block's dynamic shared memory.
template <class T>
class Shared {
 public:
  Shared() = default;
  explicit Shared(uint32_t offset) : offset_(offset) {}
  Shared operator+(int64_t count) const {
    return Shared(static_cast<uint32_t>(offset_ + count * static_cast<int64_t>(sizeof(T))));
  }
  uint32_t offset() const { return offset_; }  // bytes

 private:
  uint32_t offset_ = 0;
};

template <class T>
Shared<T> dynamic_shared() {
  return Shared<T>(0);
}

template <class U, class T>
Shared<U> shared_cast(Shared<T> p) {
  return Shared<U>(p.offset());
}

template <class T>
T load_shared(Shared<T> p, Where where = Where::here()) {
  static_assert(sizeof(T) % 4 == 0, "shared memory is read in whole banks");
  T value;
  std::memcpy(&value, emulator::shared_read(p.offset(), sizeof(T), where), sizeof(T));
  return value;
}

template <class T>
void store_shared(Shared<T> p, std::type_identity_t<T> value, Where where = Where::here()) {
  static_assert(sizeof(T) % 4 == 0, "shared memory is written in whole banks");
  std::memcpy(emulator::shared_write(p.offset(), sizeof(T), where), &value, sizeof(T));
}

// An atomic sum; returns what was there before.
inline uint32_t atomic_add_shared(Shared<uint32_t> p, uint32_t value, Where where = Where::here()) {
  return emulator::shared_add(p.offset(), value, where);
}

template <class T>
T load_global(const T* p, Where where = Where::here()) {
  T value;
  std::memcpy(&value, emulator::global_read(p, sizeof(T), where), sizeof(T));
  return value;
}

template <class T>
void store_global(T* p, std::type_identity_t<T> value, Where where = Where::here()) {
  std::memcpy(emulator::global_write(p, sizeof(T), where), &value, sizeof(T));
}

inline bool in_bounds(bool condition, Where where = Where::here()) {
  return emulator::guard(condition, where);
}

}  // namespace deltad::cuda
