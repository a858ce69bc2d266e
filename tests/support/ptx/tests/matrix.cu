// Tensor-core instructions and asynchronous copies, to test the interpreter: matrix_test.cc
// computes the same on the host.
#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void load4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ void load2_transposed(uint32_t (&r)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address));
}

__device__ __forceinline__ bool in_bounds(bool condition) { return condition; }

}  // namespace

// c[16][8] = a[16][16] · b[16][8], both row by row; one warp.
#define PRODUCT(name, type)                                                                 \
  extern "C" __global__ void name(const uint16_t* a, const uint16_t* b, float* c) {         \
    __shared__ alignas(16) uint16_t sa[16 * 16], sb[16 * 8];                                \
    const uint32_t l = threadIdx.x;                                                         \
    for (uint32_t i = l; i < 256; i += 32) sa[i] = a[i];                                    \
    for (uint32_t i = l; i < 128; i += 32) sb[i] = b[i];                                    \
    __syncwarp();                                                                           \
    uint32_t fa[4], fb[2];                                                                  \
    load4(fa, shared_address(&sa[l % 16 * 16 + l / 16 * 8]));                               \
    load2_transposed(fb, shared_address(&sb[l % 16 * 8]));                                  \
    float d[4] = {};                                                                        \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                     \
                 ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"               \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                           \
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1])); \
    for (uint32_t e = 0; e < 4; ++e) c[(l / 4 + e / 2 * 8) * 8 + l % 4 * 2 + e % 2] = d[e]; \
  }
PRODUCT(product_bf16, "bf16")
PRODUCT(product_f16, "f16")

// c[16][8] += popcounts of a[16][8 words] with b[8][8 words].
#define BITS(name, op)                                                                     \
  extern "C" __global__ void name(const uint32_t* a, const uint32_t* b, int32_t* c) {      \
    const uint32_t g = threadIdx.x / 4, t = threadIdx.x % 4;                               \
    int32_t* at = c + g * 8 + t * 2;                                                       \
    int32_t d[4] = {at[0], at[1], at[64], at[65]};                                         \
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32." op                    \
                 ".popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"             \
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])                          \
                 : "r"(a[g * 8 + t]), "r"(a[(g + 8) * 8 + t]), "r"(a[g * 8 + t + 4]),      \
                   "r"(a[(g + 8) * 8 + t + 4]), "r"(b[g * 8 + t]), "r"(b[g * 8 + t + 4])); \
    at[0] = d[0], at[1] = d[1], at[64] = d[2], at[65] = d[3];                              \
  }
BITS(bits_and, "and")
BITS(bits_xor, "xor")

// out[thread] = sum of in[row][thread], rows through three stages of shared memory. Threads read
// what their neighbours copied. Columns from `columns` on are zeros.
extern "C" __global__ void staged_sum(const float* in, float* out, uint32_t rows,
                                      uint32_t columns) {
  __shared__ alignas(16) float stages[3][256];
  const uint32_t t = threadIdx.x;  // 64 threads, 4 columns each
  auto copy = [&](uint32_t row) {
    if (in_bounds(row < rows)) {
      const uint32_t left = in_bounds(4 * t < columns) ? columns - 4 * t : 0,
                     bytes = left < 4 ? 4 * left : 16;
      const float* from = in + row * columns + (left > 0 ? 4 * t : 0);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                       shared_address(&stages[row % 3][4 * t])),
                   "l"(from), "r"(bytes));
    }
    asm volatile("cp.async.commit_group;");
  };
  copy(0);
  copy(1);
  float sums[4] = {};
  for (uint32_t row = 0; row < rows; ++row) {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (uint32_t i = 0; i < 4; ++i) sums[i] += stages[row % 3][t + 64 * i];
    copy(row + 2);
  }
  for (uint32_t i = 0; i < 4; ++i) out[t + 64 * i] = sums[i];
}
