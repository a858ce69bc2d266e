// Kernels that are compiled to PTX to test the interpreter: each uses one part of the language.
// interpreter_test.cc computes the same on the host.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

__device__ __forceinline__ bool in_bounds(bool condition) { return condition; }

extern "C" __global__ void vector_add(const float* a, const float* b, float* out, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (in_bounds(i < n)) out[i] = a[i] + b[i];
}

// The block's sum through shuffles, then static shared memory; kWarps = 4.
extern "C" __global__ void block_sum(const int32_t* in, int32_t* out) {
  __shared__ int32_t parts[4];
  int32_t v = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0U, v, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}

// Reverses 64-bit values within a block, through dynamic shared memory.
extern "C" __global__ void reverse(uint64_t* data) {
  extern __shared__ uint64_t staged[];
  const uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  staged[threadIdx.x] = data[i];
  __syncthreads();
  data[i] = staged[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void count(const uint32_t* values, uint32_t* bins, uint32_t* highest,
                                 float* sum, uint32_t n) {
  __shared__ uint32_t local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&local[values[i] % 16], 1U);
    atomicMax(highest, values[i]);
    atomicAdd(sum, 0.5F);
  }
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// out: bf16 bits, f16 bits, bf16 back as float, f16 back as float, as int, rounded up.
extern "C" __global__ void convert(const float* in, uint32_t* out) {
  const float x = in[threadIdx.x];
  const __nv_bfloat16 b = __float2bfloat16_rn(x);
  const __half h = __float2half_rn(x);
  uint32_t* o = out + 6 * threadIdx.x;
  o[0] = __bfloat16_as_ushort(b);
  o[1] = __half_as_ushort(h);
  o[2] = __float_as_uint(__bfloat162float(b));
  o[3] = __float_as_uint(__half2float(h));
  o[4] = static_cast<uint32_t>(static_cast<int32_t>(x));
  o[5] = static_cast<uint32_t>(__float2int_ru(x));
}

extern "C" __global__ void pairs(const float2* in, const uint32_t* other, uint32_t* out) {
  const float2 x = in[threadIdx.x];
  const __nv_bfloat162 b = __floats2bfloat162_rn(x.x, x.y);
  const __nv_bfloat162 c = *reinterpret_cast<const __nv_bfloat162*>(other + threadIdx.x);
  const __nv_bfloat162 r = __hfma2(b, c, b);
  out[threadIdx.x] = *reinterpret_cast<const uint32_t*>(&r);
}

// Collatz: lanes leave a loop at different times, on two paths.
extern "C" __global__ void diverge(const uint32_t* in, uint32_t* out) {
  uint32_t x = in[threadIdx.x], steps = 0;
  while (x != 1) {
    if (x % 2 == 0) {
      x /= 2;
    } else {
      x = 3 * x + 1;
    }
    ++steps;
  }
  const uint32_t even = __ballot_sync(~0U, steps % 2 == 0);
  out[threadIdx.x] = steps + 1000 * static_cast<uint32_t>(__popc(even));
}

// An array that the compiler cannot keep in registers.
extern "C" __global__ void local_array(const uint32_t* index, uint32_t* out) {
  uint32_t a[32];
  for (uint32_t i = 0; i < 32; ++i) a[i] = i * i + threadIdx.x;
  for (uint32_t i = 0; i < 32; ++i) a[index[i] % 32] ^= a[(index[i] + threadIdx.x) % 32] << 1;
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 32; ++i) sum = sum * 31 + a[i];
  out[threadIdx.x] = sum;
}

__constant__ uint32_t table[4] = {0x80000001U, 7, 11, 13};

extern "C" __global__ void integers(const int32_t* a, const int32_t* b, int64_t* out) {
  const int32_t x = a[threadIdx.x], y = b[threadIdx.x];
  const int64_t wide = static_cast<int64_t>(x) * y + 5;
  int64_t* o = out + int64_t{8} * threadIdx.x;
  o[0] = x / y;
  o[1] = x % y;
  o[2] = static_cast<uint32_t>(x) / static_cast<uint32_t>(y);
  o[3] = wide / (int64_t{y} * 3);
  o[4] = __mulhi(x, y) + (x >> (y & 7)) - static_cast<int16_t>(x);
  o[5] = __brev(static_cast<uint32_t>(x)) + __clz(y) + table[threadIdx.x % 4];
  o[6] = __byte_perm(static_cast<uint32_t>(x), static_cast<uint32_t>(y), 0x2461);
  o[7] =
      static_cast<int64_t>(__umul64hi(static_cast<uint64_t>(wide), 0x123456789abcdefULL)) + x / 7;
}

extern "C" __global__ void roots(const float* in, float* out) {
  const float x = in[threadIdx.x];
  float* o = out + 4 * threadIdx.x;
  o[0] = sqrtf(x);
  o[1] = 1.0F / x;
  o[2] = fmaf(x, x, -1.0F) / (x + 3.0F);
  o[3] = fminf(x, 2.0F) + fmaxf(floorf(x), rintf(x)) + truncf(x * 0.3F);
}
