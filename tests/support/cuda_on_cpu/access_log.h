// Which bytes of a range of device memory kernels touched: a bit a byte, for each way of touching.
// Owned by whoever made the range; used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace deltad::emulator {

struct Interval {
  size_t begin, end;
};

class AccessLog {
 public:
  explicit AccessLog(size_t bytes);

  // early: before the kernel waited for the one before it.
  void note(size_t offset, size_t bytes, bool write, bool early);

  // In order, merged where they touch.
  struct Touched {
    std::vector<Interval> reads, writes, early_reads, early_writes;
  };
  // Since the last take().
  Touched take();
  bool empty() const;

 private:
  static constexpr size_t kBlockBytes = 4096;
  using Block = std::array<uint64_t, kBlockBytes / 64>;
  struct Marks {
    std::vector<std::unique_ptr<Block>> blocks;  // null: no bit is set
    std::vector<size_t> dirty;                   // which are not null
  };
  static std::vector<Interval> take(Marks& marks);

  Marks marks_[4];
  const size_t count_;  // blocks
};

}  // namespace deltad::emulator
