// Bulk copies, mbarriers and wgmma, to test the interpreter: hopper_test.cc computes the same on
// the host.
#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ void load(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

}  // namespace

// out[block][i] = sum of in[row][i] for the block's rows: thread 128 feeds two stages of 1024
// bytes, 128 threads add. The sums leave by a bulk store.
extern "C" __global__ void bulk_sum(const uint64_t* in, uint64_t* out, uint32_t rows) {
  __shared__ alignas(128) uint64_t stages[2][128], sums[128];
  __shared__ uint64_t full[2], empty[2];
  const uint32_t t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 2; ++s) init(&full[s], 1), init(&empty[s], 128);
  }
  __syncthreads();
  if (t >= 128) {
    if (t == 128) {
      for (uint32_t r = 0; r < rows; ++r) {
        if (r >= 2) wait(&empty[r % 2], r / 2 - 1 & 1);
        load(stages[r % 2], in + (blockIdx.x * rows + r) * 128, 1024, &full[r % 2]);
      }
    }
    return;
  }
  uint64_t sum = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    wait(&full[r % 2], r / 2 & 1);
    sum += stages[r % 2][t];
    arrive(&empty[r % 2]);
  }
  sums[t] = sum;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 1, 128;" ::: "memory");
  if (t == 0) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;" ::"l"(
                     out + blockIdx.x * 128),
                 "r"(shared_address(sums))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}

// c[64][8] = a[64][32] · b[8][32]ᵀ, bf16, two steps along K; a and b lie along K, without swizzle
// (mode 0) or in rows of 128 bytes, of which 64 are used, with the swizzle of 128 bytes (mode 1).
// kInTurn: A of the second step goes into the registers of the first.
template <bool kRegisters, bool kInTurn = false>
__device__ __forceinline__ void product(const uint16_t* a, const uint16_t* b, float* c,
                                        uint32_t mode) {
  __shared__ alignas(1024) uint16_t sa[64 * 64], sb[8 * 64];
  const uint32_t t = threadIdx.x;
  auto place = [&](uint32_t row, uint32_t k) {  // of 2 bytes
    if (mode == 0) return row / 8 * 256 + k / 8 * 64 + row % 8 * 8 + k % 8;
    return row * 64 + ((k / 8 ^ row % 8) * 8) + k % 8;
  };
  for (uint32_t i = t; i < 64 * 32; i += 128) sa[place(i / 32, i % 32)] = a[i];
  for (uint32_t i = t; i < 8 * 32; i += 128) sb[place(i / 32, i % 32)] = b[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  auto descriptor = [&](const void* p, uint32_t step) {
    const uint32_t from = shared_address(p) + (mode == 0 ? 256 : 32) * step;
    const uint64_t leading = 128 >> 4, stride = (mode == 0 ? 512 : 1024) >> 4;
    return uint64_t{from >> 4} | leading << 16 | stride << 32 | uint64_t{mode} << 62;
  };
  const uint32_t l = t % 32, row = t / 32 * 16 + l / 4, column = l % 4 * 2;
  const auto* words = reinterpret_cast<const uint32_t*>(a) + row * 16 + l % 4;
  uint32_t fa[2][4];
  for (uint32_t e = 0; e < 8; ++e)
    fa[e / 4][e % 4] = words[e / 4 * 8 + e % 2 * 128 + e % 4 / 2 * 4];
  float d[4] = {1, 1, 1, 1};
  if constexpr (kInTurn) {
#pragma unroll 1
    for (uint32_t step = 0; step < 2; ++step) {
      uint32_t w[4];
      for (uint32_t e = 0; e < 4; ++e) w[e] = words[step * 8 + e % 2 * 128 + e / 2 * 4];
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, "
          "p, 1, 1, 0;\n}"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(descriptor(sb, step)), "r"(step));
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    for (uint32_t e = 0; e < 4; ++e) c[(row + e / 2 * 8) * 8 + column + e % 2] = d[e];
    return;
  }
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (uint32_t step = 0; step < 2; ++step) {
    if constexpr (kRegisters) {
      const uint32_t(&w)[4] = fa[step];
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, "
          "p, 1, 1, 0;\n}"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(descriptor(sb, step)), "r"(step));
    } else {
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, "
          "0;\n}"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "l"(descriptor(sa, step)), "l"(descriptor(sb, step)), "r"(step));
    }
  }
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
  for (uint32_t e = 0; e < 4; ++e) c[(row + e / 2 * 8) * 8 + column + e % 2] = d[e];
}

extern "C" __global__ void product_shared(const uint16_t* a, const uint16_t* b, float* c,
                                          uint32_t mode) {
  product<false>(a, b, c, mode);
}
extern "C" __global__ void product_in_turn(const uint16_t* a, const uint16_t* b, float* c,
                                           uint32_t mode) {
  product<true, true>(a, b, c, mode);
}
extern "C" __global__ void product_registers(const uint16_t* a, const uint16_t* b, float* c,
                                             uint32_t mode) {
  product<true>(a, b, c, mode);
}
