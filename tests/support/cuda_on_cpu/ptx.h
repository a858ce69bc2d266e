// The helpers of kernels/cuda/ptx.h, which says what each does, run on the CPU.
#pragma once

#include <cstdint>

#include "tests/support/cuda_on_cpu/machine.h"
#include "tests/support/cuda_on_cpu/memory.h"

namespace deltad::emulator {

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

uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table);
int32_t atomic_add_acquire_release(int32_t* p, int32_t value, Where where);

}  // namespace deltad::emulator

namespace deltad::cuda {

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

template <uint32_t kTable>
uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  return emulator::lop3(a, b, c, kTable);
}
uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector);
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
