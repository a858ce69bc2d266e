// Arena: one mapping of CPU memory that holds many pieces side by side, in the order in which they
// are read, and is freed as a whole. It begins at a multiple of 2 MiB and asks for huge pages, so
// that matrices smaller than one page of 2 MiB get them too. What is where is planned first
// (ArenaPlan), so the size is known before any memory is taken, and nothing is left over:
// bytes() is what the arena takes, to the page. Owned by one holder; move-only. Pieces may be
// written by any thread.
#pragma once

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace deltad {

constexpr size_t kArenaAlignment = 64;              // of each piece: a cache line, a vector
constexpr size_t kHugePageBytes = size_t{1} << 21;  // of the mapping's begin

// A piece of memory that somebody else owns. Passed by value.
class MemoryPiece {
 public:
  MemoryPiece() = default;
  MemoryPiece(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Hands out places, one after the other. Takes no memory.
class ArenaPlan {
 public:
  struct Place {
    size_t offset = 0, bytes = 0;
  };
  Place add(size_t bytes);
  size_t bytes() const;  // what Arena::make(plan) takes

 private:
  size_t end_ = 0;
};

class Arena {
 public:
  Arena() = default;
  ~Arena() { reset(); }
  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    if (this != &other) {
      reset();
      swap(other);
    }
    return *this;
  }

  // Zero-filled memory, which the system takes up as it is written to or by populate().
  // kResourceExhausted with the size if there is none.
  static Result<Arena> make(const ArenaPlan& plan);

  // Makes every page resident, so that no later access waits for the system. Keeps what was
  // written; not at the same time as writing.
  Status populate();
  // The same, a huge page at a time, with `after_each` after each; its error ends this.
  Status populate(const std::function<Status()>& after_each);

  MemoryPiece at(ArenaPlan::Place place) const;
  size_t bytes() const { return bytes_; }

 private:
  Status populate(size_t step, const std::function<Status()>& after_each);
  void reset();
  void swap(Arena& other);
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deltad
