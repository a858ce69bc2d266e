#include "tests/support/cuda_on_cpu/ptx.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/float16.h"
#include "tests/support/cuda_on_cpu/builtins.h"
#include "tests/support/cuda_on_cpu/tensor_core.h"

namespace deltad::emulator {
namespace {

constexpr uint32_t kAllLanes = 0xffffffffu;

// Rounded to nearest, ties to even.
uint16_t f16_of(double v) {
  const auto sign = static_cast<uint16_t>(std::signbit(v) ? 0x8000u : 0u);
  const double size = std::abs(v);
  if (std::isnan(v)) return sign | 0x7e00u;
  if (size >= 65520) return sign | 0x7c00u;
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  // Of the last digit. A sum that rounds up to the next power of two carries into the exponent.
  const auto digits = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<uint16_t>(sign | (digits + (exponent + 14) * 1024));
}

template <class F>
uint32_t for_halves(F of) {
  return of(0u) | static_cast<uint32_t>(of(16u)) << 16;
}

}  // namespace

void wait_for_previous_kernel(Where where) {
  if (!current->block->machine->on(SiteKind::kWait, where)) return;
  if (current->block->machine->weaker(SiteKind::kWait, where)) return;
  current->previous_ended = true;
}

// A copy takes its target away at once and delivers when the thread waits: as early and as late as
// it may.
void copy_async(uint32_t offset, const void* source, uint32_t bytes, bool zero, Where where) {
  Thread& self = *current;
  Block& block = *self.block;
  Machine& machine = *block.machine;
  if (!zero) source = global_read(source, bytes, where);
  machine.note(AccessKind::kSharedWrite, offset, bytes, where);
  std::memset(shared_target(offset, bytes, bytes, where), 0xff, bytes);
  machine.check(block.races->copy_starts(self.clock, block.shared_at + offset, bytes), self, true,
                where);
  self.async.copies.push_back({offset, zero ? nullptr : source, bytes});
}

void commit_copies() {
  AsyncCopies& async = current->async;
  async.groups.push_back(async.copies.size());
}

void wait_for_copies(uint32_t open_groups, Where where) {
  Thread& self = *current;
  Block& block = *self.block;
  if (!block.machine->on(SiteKind::kWait, where)) return;
  if (block.machine->weaker(SiteKind::kWait, where)) ++open_groups;
  AsyncCopies& async = self.async;
  if (async.groups.size() <= open_groups) return;
  const size_t landing_groups = async.groups.size() - open_groups;
  const size_t landing = async.groups[landing_groups - 1];
  for (size_t i = 0; i < landing; ++i) {
    const AsyncCopies::Copy& copy = async.copies[i];
    std::byte* to = block.shared.data() + copy.offset;
    if (copy.source == nullptr) {
      std::memset(to, 0, copy.bytes);
    } else {
      std::memcpy(to, copy.source, copy.bytes);
    }
    block.races->copy_lands(self.clock, block.shared_at + copy.offset, copy.bytes);
  }
  async.copies.erase(async.copies.begin(), async.copies.begin() + static_cast<ptrdiff_t>(landing));
  async.groups.erase(async.groups.begin(),
                     async.groups.begin() + static_cast<ptrdiff_t>(landing_groups));
  for (size_t& end : async.groups) end -= landing;
}

// Lane l's address is row l % 8 of matrix l / 8; register i of lane l holds elements 2·(l % 4) and
// the next of row l / 4 of matrix i (transposed: of column l / 4).
void load_matrices(uint32_t (&r)[4], uint32_t offset, MatrixLayout layout, Where where) {
  struct Part {
    uint32_t* r;
    uint32_t offset;
  } part{r, offset};
  current->block->machine->meet("ldmatrix", kAllLanes, &part, where, [=](Warp& warp, uint32_t) {
    const std::byte* rows[32];
    Thread* last = current;
    for (int lane = 0; lane < 32; ++lane) {
      current = warp.lanes[lane];  // whose access this is
      rows[lane] = shared_read(static_cast<Part*>(current->arguments)->offset, 16, where);
    }
    current = last;
    for (int lane = 0; lane < 32; ++lane) {
      uint32_t* out = static_cast<Part*>(warp.lanes[lane]->arguments)->r;
      for (int i = 0; i < 4; ++i) {
        if (layout == MatrixLayout::kRows) {
          std::memcpy(&out[i], rows[8 * i + lane / 4] + 4 * (lane % 4), 4);
          continue;
        }
        uint16_t pair[2];
        for (int h = 0; h < 2; ++h) {
          std::memcpy(&pair[h], rows[8 * i + 2 * (lane % 4) + h] + 2 * (lane / 4), 2);
        }
        std::memcpy(&out[i], pair, 4);
      }
    }
  });
}

void mma_k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], FloatType type,
             Where where) {
  Fragments<float> own{d, a, b};
  Machine& machine = *current->block->machine;
  machine.meet("mma.m16n8k16", kAllLanes, &own, where, [&machine, type](Warp& warp, uint32_t) {
    WarpFragments<float> all;
    for (size_t lane = 0; lane < 32; ++lane) {
      all[lane] = *static_cast<Fragments<float>*>(warp.lanes[lane]->arguments);
    }
    if (type == FloatType::kBf16) {
      mma_bf16(all);
    } else {
      mma_f16(all);
    }
    ++machine.counters().mma;
  });
}

void mma_k256(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], BitOp op,
              Where where) {
  Fragments<int32_t> own{d, a, b};
  Machine& machine = *current->block->machine;
  machine.meet("mma.m16n8k256", kAllLanes, &own, where, [&machine, op](Warp& warp, uint32_t) {
    WarpFragments<int32_t> all;
    for (size_t lane = 0; lane < 32; ++lane) {
      all[lane] = *static_cast<Fragments<int32_t>*>(warp.lanes[lane]->arguments);
    }
    if (op == BitOp::kAnd) {
      mma_b1_and(all);
    } else {
      mma_b1_xor(all);
    }
    ++machine.counters().mma;
  });
}

// Whatever the bytes are, they must be there.
void prefetch(const void* from, uint32_t bytes, Where where) { global_bounds(from, bytes, where); }

void fence_proxy(Where where) {
  Block& block = *current->block;
  if (!block.machine->on(SiteKind::kProxyFence, where)) return;
  block.races->fence_proxy(current->clock);
}

uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    if ((table >> i & 1) == 0) continue;
    result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

int32_t atomic_add_acquire_release(int32_t* p, int32_t value, Where where) {
  Machine& machine = *current->block->machine;
  if (machine.on(SiteKind::kRelease, where)) machine.release_messages(p);
  const int32_t old = atomic_add(p, value, where);
  if (machine.on(SiteKind::kAcquire, where)) machine.acquire_messages(p);
  return old;
}

uint32_t add_pairs(uint32_t a, uint32_t b) {
  return for_halves([&](uint32_t shift) {
    const auto value = [&](uint32_t pair) {
      return double{f16_to_f32(static_cast<uint16_t>(pair >> shift))};
    };
    return f16_of(value(a) + value(b));
  });
}

uint32_t pack_halves(float low, float high) {
  return for_halves([&](uint32_t shift) { return f16_of(shift == 0 ? low : high); });
}

// Products of bf16 are exact in fp32, or so small that both round to nothing.
uint32_t scale_magnitudes(uint32_t pair, uint32_t factors) {
  return for_halves([&](uint32_t shift) {
    const auto value = [&](uint32_t v) { return bf16_to_f32(static_cast<uint16_t>(v >> shift)); };
    return f32_to_bf16(std::abs(value(pair)) * value(factors));
  });
}

}  // namespace deltad::emulator

namespace deltad::cuda {

uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t pick = selector >> (4 * i) & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (pick & 7))) & 0xff;
    if (pick & 8) byte = byte & 0x80 ? 0xff : 0;  // its sign, eight times
    result |= byte << (8 * i);
  }
  return result;
}

uint32_t pack_bf16x2(float low, float high) {
  return f32_to_bf16(low) | static_cast<uint32_t>(f32_to_bf16(high)) << 16;
}

}  // namespace deltad::cuda
