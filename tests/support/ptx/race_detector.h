// Finds accesses to shared memory that nothing orders: vector clocks of a cluster's warps, and
// within a warp the interval since its lanes last met at a barrier. Looks at each 4 bytes, with a
// mask of bytes. Of the thread that runs the grid.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace deltad::ptx {

// What a warp knows of each warp of the cluster: the interval up to which all that one did is
// known; that up to which only its reads have ended, and what it did to barriers of others; how
// many mbarriers it made, counted from 1, so that 1 says that the warp has started.
using Clock = std::vector<uint32_t>;
void join(Clock& into, const Clock& other);

// The clocks of a cluster's warps.
class Clocks {
 public:
  explicit Clocks(uint32_t warps);
  uint32_t warps() const { return warps_; }

  // What the warp did so far becomes known to whoever joins the result.
  Clock release(uint32_t warp);
  void acquire(uint32_t warp, const Clock& known);
  // Only that what was released is over: its writes may not be visible.
  void acquire_ends(uint32_t warp, const Clock& known);
  // The warp's lanes met.
  void meet(uint32_t warp) { ++row(warp)[warp]; }

  uint32_t now(uint32_t warp) const { return row(warp)[warp]; }
  uint32_t known(uint32_t to, uint32_t of) const { return row(to)[of]; }
  uint32_t known_end(uint32_t to, uint32_t of) const { return row(to)[warps_ + of]; }
  // Mbarriers: the number of one that the warp makes now; whether another warp knows of it.
  uint32_t made_mbarrier(uint32_t warp) { return ++row(warp)[2 * warps_ + warp]; }
  uint32_t mbarriers(uint32_t warp) const { return row(warp)[2 * warps_ + warp]; }
  bool knows_mbarrier(uint32_t warp, uint32_t of, uint32_t number) const {
    return row(warp)[2 * warps_ + of] >= number;
  }
  // Only that the warp started and made its first `mbarriers`.
  Clock start_of(uint32_t warp, uint32_t mbarriers) const;

 private:
  uint32_t* row(uint32_t warp) { return clocks_.data() + 3ULL * warps_ * warp; }
  const uint32_t* row(uint32_t warp) const { return clocks_.data() + 3ULL * warps_ * warp; }

  uint32_t warps_;
  std::vector<uint32_t> clocks_;  // [warp][3 · warps]
};

// One block's shared memory.
class RaceDetector {
 public:
  // Warps are those of the cluster, `per_block` of each block.
  void start(uint64_t bytes, const Clocks& clocks, uint32_t per_block);

  // A lane's access; `line` of the PTX, for messages. What it is in conflict with, if anything.
  std::optional<std::string> read(uint32_t warp, int lane, uint64_t address, uint32_t bytes);
  std::optional<std::string> write(uint32_t warp, int lane, uint64_t address, uint32_t bytes,
                                   int line);

 private:
  struct Write {
    uint32_t interval = 0;  // 0: never
    uint16_t warp = 0;
    uint8_t lane = 0, mask = 0;
    int line = 0;
    // Of the warps that read the word since all of it was written: what else reads_ holds counts no
    // more, as who is ordered after that write is after them. Warps 64 apart share a bit.
    uint64_t readers = 0;
  };
  struct Read {
    uint32_t interval;
    uint8_t lane, mask;  // kSeveral: lanes
  };
  static constexpr uint8_t kSeveral = 255;

  // An earlier access, and what the warp knows of the other.
  bool ordered(uint32_t interval, uint32_t by, int by_lane, uint32_t warp, int lane,
               uint32_t known) const {
    if (by == warp) return interval < clocks_->now(warp) || by_lane == lane;
    return interval <= known;
  }
  bool ordered(const Write& w, uint32_t warp, int lane) const {
    return ordered(w.interval, w.warp, w.lane, warp, lane, clocks_->known(warp, w.warp));
  }
  bool ordered(const Read& r, uint32_t by, uint32_t warp, int lane) const {
    return ordered(r.interval, by, r.lane, warp, lane, clocks_->known_end(warp, by));
  }
  std::string name(uint32_t warp) const;
  std::string after_write(uint64_t word, const std::string& access) const;

  const Clocks* clocks_ = nullptr;
  uint32_t per_block_ = 1;
  std::vector<Write> writes_;
  std::unique_ptr<Read[]> reads_;  // [warp][word]
};

}  // namespace deltad::ptx
