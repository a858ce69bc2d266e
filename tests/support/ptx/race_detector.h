// Finds accesses to shared memory that nothing orders: vector clocks of warps, and within a warp
// the interval since its lanes last met at a barrier. Looks at each 4 bytes, with a mask of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace deltad::ptx {

// What a warp knows to have happened: an interval of each warp.
using Clock = std::vector<uint32_t>;
void join(Clock& into, const Clock& other);

class RaceDetector {
 public:
  void start(uint64_t bytes, size_t warps);

  // A lane's access; `line` of the PTX, for messages. What it is in conflict with, if anything.
  std::optional<std::string> read(uint32_t warp, int lane, uint64_t address, uint32_t bytes);
  std::optional<std::string> write(uint32_t warp, int lane, uint64_t address, uint32_t bytes,
                                   int line);

  // What the warp did so far becomes known to whoever joins the result.
  Clock release(uint32_t warp);
  void acquire(uint32_t warp, const Clock& known) { join(clocks_[warp], known); }
  // The warp's lanes met.
  void meet(uint32_t warp) { ++clocks_[warp][warp]; }

 private:
  struct Write {
    uint32_t interval = 0;  // 0: never
    uint16_t warp = 0;
    uint8_t lane = 0, mask = 0;
    int line = 0;
  };
  struct Read {
    uint32_t interval = 0;
    uint8_t lane = 0, mask = 0;  // kSeveral: lanes
  };
  static constexpr uint8_t kSeveral = 255;

  bool ordered(uint32_t interval, uint32_t by, int by_lane, uint32_t warp, int lane) const;

  std::vector<Clock> clocks_;
  std::vector<Write> writes_;
  std::vector<Read> reads_;  // [word][warp]
};

}  // namespace deltad::ptx
