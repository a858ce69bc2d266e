#include "tests/support/cuda_on_cpu/builtins.h"

namespace deltad::emulator {

uint32_t ballot(uint32_t mask, bool vote, Where where) {
  struct Part {
    bool vote;
    uint32_t result;
  } part{vote, 0};
  current->block->machine->meet("a vote", mask, &part, where, [](Warp& warp, uint32_t lanes) {
    uint32_t result = 0;
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      if (static_cast<Part*>(warp.lanes[lane]->arguments)->vote) result |= 1u << lane;
    }
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      static_cast<Part*>(warp.lanes[std::countr_zero(left)]->arguments)->result = result;
    }
  });
  return part.result;
}

}  // namespace deltad::emulator

void __syncwarp(uint32_t mask, deltad::emulator::Where where) {
  using namespace deltad::emulator;
  Machine& machine = *current->block->machine;
  if (!machine.on(SiteKind::kWarpBarrier, where)) return;
  machine.meet("__syncwarp", mask, nullptr, where, [](Warp& warp, uint32_t lanes) {
    RaceDetector& races = *warp.lanes[std::countr_zero(lanes)]->block->races;
    RaceDetector::Clock clock;
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      races.give(warp.lanes[std::countr_zero(left)]->clock, clock);
    }
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      races.take(warp.lanes[std::countr_zero(left)]->clock, clock);
    }
  });
}
