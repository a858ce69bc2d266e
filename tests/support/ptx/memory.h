// The global memory a kernel may touch: the caller's buffers, registered. Any access must lie whole
// in one of them. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace deltad::ptx {

class Memory {
 public:
  // A buffer that kernels read and, unless const, write; addresses are the host's. Fresh: the
  // kernel before may still be at it (Options::overlaps_previous).
  template <typename T>
  void add(const std::string& name, std::span<T> buffer, bool fresh = false) {
    const std::span<const std::byte> bytes = std::as_bytes(buffer);
    if (!bytes.empty()) {
      buffers_.push_back({name, reinterpret_cast<uint64_t>(bytes.data()), bytes.size(),
                          !std::is_const_v<T>, fresh});
    }
  }

  // Whether [address, address + bytes) may be accessed.
  bool allows(uint64_t address, uint64_t bytes, bool write) {
    if (inside(buffers_.empty() ? nullptr : &buffers_[last_], address, bytes)) {
      return !write || buffers_[last_].writable;
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (inside(&buffers_[i], address, bytes)) {
        last_ = i;
        return !write || buffers_[i].writable;
      }
    }
    return false;
  }

  // Of the last address that was allowed.
  bool last_is_fresh() const { return buffers_[last_].fresh; }

  // For a message: where the address lies.
  std::string describe(uint64_t address) const;

 private:
  struct Buffer {
    std::string name;
    uint64_t address, bytes;
    bool writable, fresh;
  };
  static bool inside(const Buffer* b, uint64_t address, uint64_t bytes) {
    return b != nullptr && address - b->address < b->bytes &&
           b->bytes - (address - b->address) >= bytes;
  }
  std::vector<Buffer> buffers_;
  size_t last_ = 0;
};

}  // namespace deltad::ptx
