// Which accesses to shared memory no synchronisation orders, by vector clocks (FastTrack: Flanagan,
// Freund 2009). Owned by a cluster of blocks, often of one: threads and shared memory are those of
// all blocks, one after the other. A cell is 4 bytes, the width of a bank. Clock t of thread u is
// what u knows of t; barriers pass knowledge on, shuffles and votes do not (CUDA promises no memory
// order for them). Two more clocks: what a thread has acquired of other blocks' stores, and what it
// knows of the copy engine, which writes bulk copies and tells mbarriers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/support/cuda_on_cpu/where.h"

namespace deltad::emulator {

class RaceDetector {
 public:
  enum class Verdict : uint8_t { kFine, kUninitialised, kInFlight, kRace };
  struct Answer {
    Verdict verdict = Verdict::kFine;
    size_t offset = 0;   // bytes from the start of shared memory
    uint32_t other = 0;  // the thread that it conflicts with
    bool other_wrote = false;
  };
  // What threads know after they met; sent along a barrier.
  using Clock = std::vector<uint32_t>;

  // looking: false where a launch is not about races, whose search is a third of its time: then
  // everything is in order.
  RaceDetector(uint32_t threads, size_t shared_bytes, bool looking = true);

  // What `shown` wrote is in order: the thread was shown it in another way.
  static constexpr uint32_t kNobody = UINT32_MAX;
  Answer read(uint32_t thread, size_t offset, size_t bytes, uint32_t shown = kNobody);
  Answer write(uint32_t thread, size_t offset, size_t bytes);
  // Reads and writes a cell at once: in order with plain accesses only.
  Answer update(uint32_t thread, size_t offset);
  // An asynchronous copy writes from its start to its landing.
  Answer copy_starts(uint32_t thread, size_t offset, size_t bytes);
  void copy_lands(uint32_t thread, size_t offset, size_t bytes);
  // The same for one that the copy engine makes; who gets `clock` knows of it.
  uint32_t bulk_copy_lands(size_t offset, size_t bytes, Clock& clock);  // when, by its clock
  uint32_t engine() const { return engine_index(); }

  // Ordinary stores are hidden from the asynchronous proxy (copy engine, tensor cores) until the
  // storing thread has fenced.
  void fence_proxy(uint32_t thread);
  bool fenced(size_t offset, size_t bytes) const;

  // `thread` adds what it knows to `clock`; what it does from now on is not part of that.
  void give(uint32_t thread, Clock& clock);
  void take(uint32_t thread, const Clock& clock);
  bool knows(uint32_t thread, uint32_t of, uint32_t time) const {
    return !looking_ || clock(thread)[of] >= time;
  }
  uint32_t time(uint32_t thread) const { return looking_ ? clock(thread)[thread] : 0; }
  uint32_t acquired(uint32_t thread) const {
    return looking_ ? clock(thread)[stamp_index()] : UINT32_MAX;
  }
  void acquire(uint32_t thread, uint32_t stamp);

 private:
  // Or who updated the cell.
  struct Reader {
    uint32_t time;
    uint16_t thread;
    bool updates;
  };
  struct Cell {
    static constexpr int kInline = 8;
    uint32_t write_time = 0;
    uint16_t writer = 0;
    bool written = false, in_flight = false, by_engine = false, updated = false;
    uint8_t readers = 0;
    Reader reader[kInline];
    // A cell that a whole block reads: when each thread last did, and last updated it, [threads].
    // They stay for the next value; crowd says which of them are this one's.
    std::unique_ptr<uint32_t[]> more[2];
    bool crowd[2] = {false, false};
  };

  uint32_t stamp_index() const { return threads_; }
  uint32_t engine_index() const { return threads_ + 1; }
  uint32_t width() const { return threads_ + 2; }
  const uint32_t* clock(uint32_t thread) const { return &clocks_[thread * width()]; }
  uint32_t* clock(uint32_t thread) { return &clocks_[thread * width()]; }
  Answer overwrite(uint32_t thread, size_t offset, size_t bytes, bool in_flight);
  void add_reader(Cell& cell, uint32_t thread, bool updates);
  // A reader of the cell, or one who updates it, that `thread` does not know of; kNobody if none.
  uint32_t unordered(const Cell& cell, uint32_t thread, bool updates) const;

  const bool looking_;
  const uint32_t threads_;
  std::vector<uint32_t> clocks_;  // [threads][width]
  std::vector<uint32_t> fences_;  // [threads]: up to which time its stores are fenced
  uint32_t engine_time_ = 0;
  std::vector<Cell> cells_;
};

}  // namespace deltad::emulator
