// The helpers of kernels/cuda/ptx.h, which says what each does, run on the CPU.
#pragma once

#include <cstdint>

#include "kernels/cuda/wgmma_layout.h"
#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/cuda_on_cpu/memory.h"

namespace deltad::emulator {

void wait_for_previous_kernel(Where where);

void copy_async(uint32_t offset, const void* source, uint32_t bytes, bool zero, Where where);
void commit_copies();
void wait_for_copies(uint32_t open_groups, Where where);

enum class MatrixLayout : uint8_t { kRows, kTransposed };
void load_matrices(uint32_t (&r)[4], uint32_t offset, MatrixLayout layout, Where where);

enum class FloatType : uint8_t { kBf16, kF16 };
void mma_k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], FloatType type,
             Where where);
enum class BitOp : uint8_t { kAnd, kXor };
void mma_k256(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], BitOp op,
              Where where);

void prefetch(const void* from, uint32_t bytes, Where where);
void fence_proxy(Where where);

void wgmma_fence(Where where);
void wgmma_f16(float* d, const uint32_t (&a)[4], uint64_t b, int32_t n, Where where);
void wgmma_commit(Where where);
void wgmma_wait(uint32_t open_groups, Where where);

uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table);
// Of two f16 or bf16 in a word.
uint32_t add_pairs(uint32_t a, uint32_t b);
uint32_t pack_halves(float low, float high);
uint32_t scale_magnitudes(uint32_t pair, uint32_t factors);
int32_t atomic_add_acquire_release(int32_t* p, int32_t value, Where where);

}  // namespace deltad::emulator

namespace deltad::cuda {

inline void wait_for_previous_kernel(Where where = Where::here()) {
  emulator::wait_for_previous_kernel(where);
}
inline void let_next_kernel_start() {}

template <class T>
void cp_async_16(Shared<T> to, const void* from, Where where = Where::here()) {
  emulator::copy_async(to.offset(), from, 16, false, where);
}
template <class T>
void cp_async_16_or_zero(Shared<T> to, const void* from, bool valid, Where where = Where::here()) {
  emulator::copy_async(to.offset(), from, 16, !valid, where);
}
template <class T>
void cp_async_8(Shared<T> to, const void* from, Where where = Where::here()) {
  emulator::copy_async(to.offset(), from, 8, false, where);
}
inline void cp_async_commit() { emulator::commit_copies(); }
template <int kOpenGroups>
void cp_async_wait(Where where = Where::here()) {
  emulator::wait_for_copies(kOpenGroups, where);
}

inline void mbarrier_init(Shared<uint64_t> barrier, uint32_t arrivals,
                          Where where = Where::here()) {
  emulator::current->block->machine->mbarrier_init(barrier.offset(), arrivals, where);
}
inline void mbarrier_arrive(Shared<uint64_t> barrier, Where where = Where::here()) {
  emulator::current->block->machine->mbarrier_arrive(barrier.offset(), 0, where);
}
inline void mbarrier_arrive_expect(Shared<uint64_t> barrier, uint32_t bytes,
                                   Where where = Where::here()) {
  emulator::current->block->machine->mbarrier_arrive(barrier.offset(), bytes, where);
}
inline void mbarrier_init_fence(Where where = Where::here()) {
  emulator::current->block->machine->mbarrier_init_fence(where);
}
inline void mbarrier_arrive_at(Shared<uint64_t> barrier, uint32_t rank,
                               Where where = Where::here()) {
  emulator::current->block->machine->mbarrier_arrive_at(barrier.offset(), rank, where);
}
inline void mbarrier_wait(Shared<uint64_t> barrier, uint32_t parity, Where where = Where::here()) {
  emulator::current->block->machine->mbarrier_wait(barrier.offset(), parity, where);
}
template <class T>
void cp_async_bulk(Shared<T> to, const void* from, uint32_t bytes, Shared<uint64_t> barrier,
                   Where where = Where::here()) {
  emulator::current->block->machine->start_bulk_copy({to.offset(), from, bytes, barrier.offset()},
                                                     where);
}
template <class T>
void bulk_copy_multicast(Shared<T> to, const void* from, uint32_t bytes, Shared<uint64_t> barrier,
                         uint16_t blocks, Where where = Where::here()) {
  emulator::current->block->machine->start_bulk_copy({to.offset(), from, bytes, barrier.offset()},
                                                     blocks, where);
}
inline void prefetch_l2(const void* from, uint32_t bytes, Where where = Where::here()) {
  emulator::prefetch(from, bytes, where);
}
inline void fence_proxy_async(Where where = Where::here()) { emulator::fence_proxy(where); }

inline uint32_t cluster_rank() { return emulator::current->block->rank; }
inline uint32_t cluster_blocks() {
  return static_cast<uint32_t>(emulator::current->block->cluster->blocks.size());
}
inline void cluster_arrive(Where where = Where::here()) {
  emulator::current->block->machine->cluster_arrive(where);
}
inline void cluster_wait(Where where = Where::here()) {
  emulator::current->block->machine->cluster_wait(where);
}

template <class T>
void ldmatrix_x4(uint32_t (&r)[4], Shared<T> row, Where where = Where::here()) {
  emulator::load_matrices(r, row.offset(), emulator::MatrixLayout::kRows, where);
}
template <class T>
void ldmatrix_x4_transposed(uint32_t (&r)[4], Shared<T> row, Where where = Where::here()) {
  emulator::load_matrices(r, row.offset(), emulator::MatrixLayout::kTransposed, where);
}

inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              Where where = Where::here()) {
  emulator::mma_k16(d, a, b, emulator::FloatType::kBf16, where);
}
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                             Where where = Where::here()) {
  emulator::mma_k16(d, a, b, emulator::FloatType::kF16, where);
}
inline void mma_m16n8k256_and(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              Where where = Where::here()) {
  emulator::mma_k256(d, a, b, emulator::BitOp::kAnd, where);
}
inline void mma_m16n8k256_xor(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              Where where = Where::here()) {
  emulator::mma_k256(d, a, b, emulator::BitOp::kXor, where);
}

template <class T>
uint64_t wgmma_descriptor(Shared<T> start, uint32_t leading_bytes, uint32_t stride_bytes,
                          WgmmaSwizzle swizzle) {
  return wgmma_descriptor_of(start.offset(), leading_bytes, stride_bytes, swizzle);
}
inline void wgmma_fence(Where where = Where::here()) { emulator::wgmma_fence(where); }
inline void wgmma_commit(Where where = Where::here()) { emulator::wgmma_commit(where); }
template <int kOpenGroups>
void wgmma_wait(Where where = Where::here()) {
  emulator::wgmma_wait(kOpenGroups, where);
}
inline void wgmma_m64n128k16_f16(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                 Where where = Where::here()) {
  emulator::wgmma_f16(d, a, b, 128, where);
}

template <uint32_t kTable>
uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  return emulator::lop3(a, b, c, kTable);
}
uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector);
inline uint32_t scale_magnitudes_bf16x2(uint32_t pair, uint32_t factors) {
  return emulator::scale_magnitudes(pair, factors);
}
inline uint32_t add_f16x2(uint32_t a, uint32_t b) { return emulator::add_pairs(a, b); }
inline uint32_t pack_f16x2(float low, float high) { return emulator::pack_halves(low, high); }
uint32_t pack_bf16x2(float low, float high);

inline void named_barrier_sync(uint32_t id, uint32_t threads, Where where = Where::here()) {
  emulator::current->block->machine->barrier(id, threads, where);
}
inline void named_barrier_arrive(uint32_t id, uint32_t threads, Where where = Where::here()) {
  emulator::current->block->machine->barrier_arrive(id, threads, where);
}
inline int32_t atomic_add_acq_rel(int32_t* p, int32_t value, Where where = Where::here()) {
  return emulator::atomic_add_acquire_release(p, value, where);
}

}  // namespace deltad::cuda
