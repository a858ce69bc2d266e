// Every piece of inline PTX, named. Included by device.h under nvcc only; the emulator has the same
// names (tests/support/cuda_on_cpu/ptx.h). Fragment layouts: docs/kernels.md.
#pragma once

#include <cstdint>

#include "kernels/cuda/wgmma_layout.h"

namespace deltad::cuda {

DELTAD_DEVICE uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// A kernel may be launched so that it starts before the one before it has ended (sm_90 and later;
// elsewhere these do nothing). Until it has waited, it may only read what never changes in a step:
// weights, not activations, tables of the batch or its own output. Every thread waits for itself.
DELTAD_DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// The next kernel may start once all blocks have said so; its wait is still for the end of this
// one.
DELTAD_DEVICE void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Copies 16 aligned bytes from global to shared memory, past L1. They are there for this thread
// once it has waited for the copy's group, for others after a barrier too.
DELTAD_DEVICE void cp_async_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
// The same, or 16 zero bytes; then `from` is not read.
DELTAD_DEVICE void cp_async_16_or_zero(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
DELTAD_DEVICE void cp_async_8(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
// The copies since the last commit become a group, maybe an empty one.
DELTAD_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the latest kOpenGroups groups are under way.
template <int kOpenGroups>
DELTAD_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpenGroups) : "memory");
}

// mbarriers and bulk copies, sm_90 and later. An mbarrier is 8 bytes of shared memory; its phases
// have parity 0, 1, 0, … and end when all arrivals have come, and all bytes that they announced.
DELTAD_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
DELTAD_DEVICE void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(
                   shared_address(barrier))
               : "memory");
}
// Arrives, and announces that many bytes of bulk copies.
DELTAD_DEVICE void mbarrier_arrive_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(
          shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Shows the mbarriers that this thread made to the copy engine, and with a cluster barrier after
// it to the cluster's threads.
DELTAD_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives at the mbarrier that lies at the same place of the cluster's block `rank`. It orders
// reads that have ended before what who waits does next, and publishes no stores to other blocks:
// .release.cluster would wait for all of the warp's memory accesses, L2's too (MEMBAR.ALL.GPU).
DELTAD_DEVICE void mbarrier_arrive_at(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// Waits for the end of the phase of this parity, the one under way or the one before.
DELTAD_DEVICE void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}
// One thread copies any multiple of 16 bytes; their coming counts for the barrier's phase.
DELTAD_DEVICE void cp_async_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
// The same to the same place of each block of the cluster whose bit is set, where it counts for the
// mbarrier at the place of this one.
DELTAD_DEVICE void bulk_copy_multicast(void* to, const void* from, uint32_t bytes,
                                       uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}
// Asks for bytes to come into the L2 cache, a multiple of 16 (sm_90 and later; elsewhere it does
// nothing).
DELTAD_DEVICE void prefetch_l2([[maybe_unused]] const void* from, [[maybe_unused]] uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes));
#endif
}
// Shows this thread's stores to shared memory (an mbarrier's init, operands of wgmma) to the copy
// engine and the tensor cores; with a barrier after it, all threads' that did so.
DELTAD_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Clusters, sm_90 and later: blocks that run at the same time and reach each other's shared memory.
// Without one, a block is a cluster of its own.
DELTAD_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DELTAD_DEVICE uint32_t cluster_blocks() {
  uint32_t blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}
// All threads of the cluster meet: each arrives, then waits, whole warps at a time. Publishes
// nothing but mbarriers that mbarrier_init_fence showed.
DELTAD_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
DELTAD_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Four 8×8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
DELTAD_DEVICE void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
DELTAD_DEVICE void ldmatrix_x4_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// D[16×8, fp32] += A[16×16] · B[16×8], A by rows, B by columns.
DELTAD_DEVICE void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DELTAD_DEVICE void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// D[16×8, int] += popcount(A[16×256 bits] op B[256×8 bits]). Native on sm_80 and sm_90.
DELTAD_DEVICE void mma_m16n8k256_and(int32_t (&d)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DELTAD_DEVICE void mma_m16n8k256_xor(int32_t (&d)[4], const uint32_t (&a)[4],
                                     const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Warpgroup products, sm_90a: four warps, D[64×128, fp32] += A[64×16] · B[16×128]. Warp w has rows
// 16w … of A and D, in fragments as of m16n8k16 (D: d[4j …] is outputs 8j …); B lies in shared
// memory (wgmma_layout.h). They run on their own: A and D may be touched again after a wait, and
// what was written to them before is seen after a fence.
template <class T>
DELTAD_DEVICE uint64_t wgmma_descriptor(T* start, uint32_t leading_bytes, uint32_t stride_bytes,
                                        WgmmaSwizzle swizzle) {
  return wgmma_descriptor_of(shared_address(start), leading_bytes, stride_bytes, swizzle);
}
DELTAD_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The instructions since the last commit become a group.
DELTAD_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kOpenGroups>
DELTAD_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kOpenGroups) : "memory");
}
DELTAD_DEVICE void wgmma_m64n128k16_f16(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Any function of three bits, 32 times: bit 4a + 2b + c of the table is its value.
template <uint32_t kTable>
DELTAD_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}
// Four bytes picked from the eight of b:a, by the selector's four hexadecimal digits.
DELTAD_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
  return d;
}
// |v| · factor for both bf16 of a word, rounded where the product is subnormal.
DELTAD_DEVICE uint32_t scale_magnitudes_bf16x2(uint32_t pair, uint32_t factors) {
  uint32_t d;
  asm("{ .reg .b32 m; abs.bf16x2 m, %1; fma.rn.bf16x2 %0, m, %2, %3; }"
      : "=r"(d)
      : "r"(pair), "r"(factors), "r"(0x80008000u));  // minus zero, which changes nothing
  return d;
}
DELTAD_DEVICE uint32_t add_f16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
// Rounded to nearest, ties to even.
DELTAD_DEVICE uint32_t pack_f16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// Rounded to nearest, ties to even.
DELTAD_DEVICE uint32_t pack_bf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

// `threads` threads of the block (a multiple of 32) meet at barrier 1…15.
DELTAD_DEVICE void named_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// Counts there without waiting.
DELTAD_DEVICE void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Publishes what this thread knows of before it, and makes visible what others so published; with
// barriers around it, the block's threads share in both.
DELTAD_DEVICE int32_t atomic_add_acq_rel(int32_t* p, int32_t value) {
  int32_t old;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(p), "r"(value)
               : "memory");
  return old;
}

}  // namespace deltad::cuda
