// What a warp's memory instructions cost: passes over the banks of shared memory, sectors of global
// memory. Owned by a warp. Lanes come one after the other; the n-th access of each lane at a line
// of source belongs to the n-th instruction there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/cuda_on_cpu/where.h"

namespace deltad::emulator {

enum class AccessKind : uint8_t { kSharedRead, kSharedWrite, kGlobalRead, kGlobalWrite };

// All instructions of one kind at one line, over a launch.
struct AccessCount {
  AccessKind kind;
  Where where;
  uint64_t instructions = 0;
  // Shared: passes that the banks need, and what they would need without conflicts. A pass gives
  // each of 32 banks' 4 bytes once; it serves 32 lanes of 4 bytes, 16 of 8 or 8 of 16.
  uint64_t passes = 0, least_passes = 0;
  // Global: sectors of 32 bytes, and bytes that lanes asked for (each counted once).
  uint64_t sectors = 0, bytes = 0;

  uint64_t conflicts() const { return passes - least_passes; }
  // Of the bytes that sectors bring, the part that was asked for.
  double used() const { return static_cast<double>(bytes) / (32.0 * static_cast<double>(sectors)); }
  std::string text() const;
};

class AccessCounter {
 public:
  void note(AccessKind kind, uint32_t lane, uint64_t address, size_t bytes, Where where);
  // Adds all to the launch's counts; what lanes left incomplete too.
  void add_to(std::vector<AccessCount>& counts);

 private:
  struct Instruction {
    uint32_t lanes = 0;
    size_t bytes = 0;
    uint64_t address[32] = {};
  };
  struct Line {
    AccessCount count;
    uint64_t done = 0;  // instructions that were counted: open[0] is the next
    uint64_t of_lane[32] = {};
    std::deque<Instruction> open;
  };
  static void finish(AccessCount& count, const Instruction& instruction);

  std::map<std::pair<std::pair<const char*, int>, AccessKind>, Line> lines_;
};

}  // namespace deltad::emulator
