// wgmma: each warp of the four multiplies its 16 rows of A, from registers, with B in shared
// memory. A group of instructions is carried out when the warp waits for it: A and B are read as
// late as may be, and until then the accumulators hold poison.
#include <cmath>
#include <cstring>

#include "kernels/cuda/wgmma_layout.h"
#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/ptx.h"

namespace deltad::emulator {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;

// Where 16 bytes of k (8 elements; half 0 or 1) of a row lie.
uint32_t unit_offset(uint64_t descriptor, uint32_t row, uint32_t half) {
  const auto start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
  const auto leading = static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  const auto stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  uint32_t pitch = 0, mask = 0;
  switch (static_cast<cuda::WgmmaSwizzle>(descriptor >> 62)) {
    case cuda::WgmmaSwizzle::kNone:
      return start + row / 8 * stride + half * leading + row % 8 * 16;
    case cuda::WgmmaSwizzle::k128:
      pitch = 128, mask = 7;
      break;
    case cuda::WgmmaSwizzle::k64:
      pitch = 64, mask = 3;
      break;
    case cuda::WgmmaSwizzle::k32:
      pitch = 32, mask = 1;
      break;
  }
  const uint32_t at = start + row / 8 * stride + row % 8 * pitch + half * 16;
  return at ^ ((at >> 7 & mask) << 4);
}

// Reads B for the current thread, with all checks. b: [16 of k, n].
void read_b(const WgmmaQueue::Operation& operation, std::vector<float>& b) {
  Block& block = *current->block;
  const auto n = static_cast<size_t>(operation.n);
  b.resize(16 * n);
  for (uint32_t row = 0; row < static_cast<uint32_t>(operation.n); ++row) {
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t at = unit_offset(operation.b, row, half);
      uint16_t unit[8];
      std::memcpy(unit, shared_read(at, 16, operation.where), 16);
      if (!block.races->fenced(block.shared_at + at, 16)) {
        block.machine->fail(FaultKind::kStale, *current, operation.where, [] {
          return std::string("no fence_proxy_async between the store of an operand and wgmma");
        });
      }
      for (size_t i = 0; i < 8; ++i) b[(half * 8 + i) * n + row] = f16_to_f32(unit[i]);
    }
  }
}

void carry_out(Warp& warp, const WgmmaQueue::Operation& operation, const std::vector<float>& b) {
  auto& sums = warp.wgmma.sums.at(operation.d[0]);
  float a[16][16];
  for (size_t lane = 0; lane < 32; ++lane) {
    for (size_t i = 0; i < 4; ++i) {
      const size_t row = lane / 4 + 8 * (i % 2), k = 2 * (lane % 4) + 8 * (i / 2);
      a[row][k] = f16_to_f32(static_cast<uint16_t>(operation.a[lane][i]));
      a[row][k + 1] = f16_to_f32(static_cast<uint16_t>(operation.a[lane][i] >> 16));
    }
  }
  // A row at a time, so that the compiler takes several columns at once; each sum in the order of
  // k.
  const auto n = static_cast<size_t>(operation.n);
  static thread_local std::vector<float> d;  // [16, n]; see wgmma_wait
  d.resize(16 * n);
  const auto at = [&](size_t lane, size_t i) -> float& {
    const size_t row = lane / 4 + 8 * (i / 2 % 2), column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
    return d[row * n + column];
  };
  for (size_t i = 0; i < sums.size(); ++i) {
    for (size_t lane = 0; lane < 32; ++lane) at(lane, i) = sums[i][lane];
  }
  for (size_t row = 0; row < 16; ++row) {
    for (size_t k = 0; k < 16; ++k) {
      for (size_t column = 0; column < n; ++column) {
        d[row * n + column] += a[row][k] * b[k * n + column];
      }
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    for (size_t lane = 0; lane < 32; ++lane) sums[i][lane] = at(lane, i);
  }
}

}  // namespace

void wgmma_fence(Where where) {
  Machine& machine = *current->block->machine;
  if (!machine.on(SiteKind::kProxyFence, where)) return;
  machine.meet("wgmma.fence", kAllLanes, nullptr, where,
               [](Warp& warp, uint32_t) { warp.wgmma.fenced = true; });
}

void wgmma_f16(float* d, const uint32_t (&a)[4], uint64_t b, int32_t n, Where where) {
  struct Part {
    float* d;
    const uint32_t* a;
  } part{d, a};
  Machine& machine = *current->block->machine;
  machine.meet("wgmma", kAllLanes, &part, where, [&machine, b, n, where](Warp& warp, uint32_t) {
    WgmmaQueue& queue = warp.wgmma;
    if (!queue.fenced) {
      machine.fail(FaultKind::kStale, *current, where,
                   [] { return std::string("no wgmma_fence since the last wait"); });
    }
    queue.operations.push_back({{}, {}, b, n, where});
    WgmmaQueue::Operation& operation = queue.operations.back();
    for (size_t lane = 0; lane < 32; ++lane) {
      const Part& own = *static_cast<Part*>(warp.lanes[lane]->arguments);
      operation.d[lane] = own.d;
      operation.a[lane] = own.a;
    }
    auto& sums = queue.sums[operation.d[0]];
    if (!sums.empty()) return;  // adds to one on its way
    sums.resize(static_cast<size_t>(n) / 2);
    for (size_t i = 0; i < sums.size(); ++i) {
      for (size_t lane = 0; lane < 32; ++lane) {
        sums[i][lane] = operation.d[lane][i];
        operation.d[lane][i] = NAN;
      }
    }
  });
}

void wgmma_commit(Where where) {
  current->block->machine->meet(
      "wgmma.commit_group", kAllLanes, nullptr, where,
      [](Warp& warp, uint32_t) { warp.wgmma.groups.push_back(warp.wgmma.operations.size()); });
}

void wgmma_wait(uint32_t open_groups, Where where) {
  Machine& machine = *current->block->machine;
  if (!machine.on(SiteKind::kWait, where)) return;
  if (machine.weaker(SiteKind::kWait, where)) ++open_groups;
  machine.meet("wgmma.wait_group", kAllLanes, nullptr, where, [=](Warp& warp, uint32_t) {
    WgmmaQueue& queue = warp.wgmma;
    queue.fenced = false;
    if (queue.groups.size() <= open_groups) return;
    const size_t ending = queue.groups.size() - open_groups, count = queue.groups[ending - 1];
    static thread_local std::vector<float> b;  // a fault drops this fiber: nothing may be its own
    for (size_t i = 0; i < count; ++i) {
      read_b(queue.operations[i], b);
      carry_out(warp, queue.operations[i], b);
    }
    // What no later instruction adds to is there.
    for (size_t i = 0; i < count; ++i) {
      const WgmmaQueue::Operation& done = queue.operations[i];
      bool goes_on = false;
      for (size_t later = count; later < queue.operations.size(); ++later) {
        goes_on = goes_on || queue.operations[later].d[0] == done.d[0];
      }
      const auto found = queue.sums.find(done.d[0]);
      if (goes_on || found == queue.sums.end()) continue;
      for (size_t r = 0; r < found->second.size(); ++r) {
        for (size_t lane = 0; lane < 32; ++lane) done.d[lane][r] = found->second[r][lane];
      }
      queue.sums.erase(found);
    }
    queue.operations.erase(queue.operations.begin(),
                           queue.operations.begin() + static_cast<ptrdiff_t>(count));
    queue.groups.erase(queue.groups.begin(), queue.groups.begin() + static_cast<ptrdiff_t>(ending));
    for (size_t& end : queue.groups) end -= count;
  });
}

}  // namespace deltad::emulator
