// HostPool: the pinned memory of the host in which variants are kept that left the device. Taken
// once, at the start: pinning costs the system too much to be done while steps run. Each rank of a
// process adds its part; a rank's variants lie in its own part as far as there is room. Handed out
// in as many pieces as it takes, so that what is free is never out of reach. Shared by the ranks'
// backends and by what lies in it; any thread.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_memory.h"
#include "base/mutex.h"

namespace deltad {

class HostPool : public std::enable_shared_from_this<HostPool> {
 public:
  // What was handed out, to be given back when it ends. Move-only.
  class Pieces {
   public:
    struct Piece {
      std::byte* data;
      size_t bytes;
    };
    Pieces() = default;
    ~Pieces() { give_back(); }
    Pieces(Pieces&& other) noexcept { swap(other); }
    Pieces& operator=(Pieces&& other) noexcept {
      if (this == &other) return *this;
      give_back();
      swap(other);
      return *this;
    }

    std::span<const Piece> all() const { return pieces_; }  // in order
    size_t bytes() const;
    // Never given back: a device that hangs may still write there.
    void abandon() { pool_ = nullptr; }

   private:
    friend class HostPool;
    void give_back();
    void swap(Pieces& other) {
      std::swap(pool_, other.pool_);
      std::swap(pieces_, other.pieces_);
    }
    std::shared_ptr<HostPool> pool_;
    std::vector<Piece> pieces_;
  };

  // owner: whose requests are served from it first.
  void add(PinnedMemory memory, const void* owner);
  // kResourceExhausted if so many bytes are not free.
  Result<Pieces> take(size_t bytes, const void* owner);
  size_t bytes() const;  // in all
  size_t used() const;

 private:
  struct Part {
    PinnedMemory memory;
    const void* owner;
    std::map<std::byte*, size_t> free;  // never two that touch
  };
  static void take_from(Part& part, size_t* bytes, std::vector<Pieces::Piece>* out);
  void give_back(const std::vector<Pieces::Piece>& pieces);

  mutable Mutex mutex_;
  std::deque<Part> parts_ GUARDED_BY(mutex_);
  size_t bytes_ GUARDED_BY(mutex_) = 0, used_ GUARDED_BY(mutex_) = 0;
};

}  // namespace deltad
