// Clusters of blocks, to test the interpreter: cluster_test.cc computes the same on the host.
#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ uint32_t cluster_blocks() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
  return r;
}
__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same place in another block of the cluster.
__device__ uint32_t address_in(const void* p, uint32_t rank) {
  uint32_t a;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(a)
               : "r"(shared_address(p)), "r"(rank));
  return a;
}
__device__ void init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
// kPublishes: what this thread stored becomes visible to the other block's threads that wait.
template <bool kPublishes>
__device__ void arrive_at(uint64_t* barrier, uint32_t rank) {
  const uint32_t there = address_in(barrier, rank);
  if (kPublishes) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there)
                 : "memory");
  } else {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  }
}
template <bool kOfCluster>
__device__ void wait(uint64_t* barrier, uint32_t parity) {
  uint32_t over;
  do {
    if (kOfCluster) {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; "
          "selp.u32 %0, 1, 0, p; }"
          : "=r"(over)
          : "r"(shared_address(barrier)), "r"(parity)
          : "memory");
    } else {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
          "selp.u32 %0, 1, 0, p; }"
          : "=r"(over)
          : "r"(shared_address(barrier)), "r"(parity)
          : "memory");
    }
  } while (over == 0);
}
__device__ void expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ void multicast(void* to, const void* from, uint32_t bytes, uint64_t* barrier,
                          uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"(mask)
      : "memory");
}

}  // namespace

// out[block][i] = (rank + 1) · sum of in[cluster][row][i]: each block's thread 128 copies its part
// of a row to all of the cluster, through two stages of 1024 bytes; 128 threads add.
extern "C" __global__ void cluster_sum(const uint64_t* in, uint64_t* out, uint32_t rows) {
  __shared__ alignas(128) uint64_t stages[2][128];
  __shared__ uint64_t full[2], empty[2];
  const uint32_t t = threadIdx.x, rank = cluster_rank(), blocks = cluster_blocks();
  if (t == 0) {
    for (int s = 0; s < 2; ++s) init(&full[s], 1), init(&empty[s], 128 * blocks);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_barrier();
  if (t == 128) {
    const uint32_t part = 128 / blocks;
#pragma unroll 1
    for (uint32_t r = 0; r < rows; ++r) {
      if (r >= 2) wait<false>(&empty[r % 2], r / 2 - 1 & 1);
      expect(&full[r % 2], 1024);
      multicast(&stages[r % 2][rank * part],
                in + (blockIdx.x / blocks * rows + r) * 128 + rank * part, 8 * part, &full[r % 2],
                static_cast<uint16_t>((1 << blocks) - 1));
    }
  } else if (t < 128) {
    uint64_t sum = 0;
#pragma unroll 1
    for (uint32_t r = 0; r < rows; ++r) {
      wait<false>(&full[r % 2], r / 2 & 1);
      sum += stages[r % 2][t];
#pragma unroll 1
      for (uint32_t b = 0; b < blocks; ++b) arrive_at<false>(&empty[r % 2], b);
    }
    out[blockIdx.x * 128 + t] = (rank + 1) * sum;
  }
  cluster_barrier();
}

// out[block][t] = in[next block of the cluster][t] twice, by both kinds of address, and how many
// threads counted in this block: those of the block before.
extern "C" __global__ void exchange(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t mine[64], count;
  const uint32_t t = threadIdx.x, block = blockIdx.x + gridDim.x * blockIdx.y;
  mine[t] = in[block * 64 + t];
  if (t == 0) count = 0;
  cluster_barrier();
  const uint32_t next = (cluster_rank() + 1) % cluster_blocks();
  uint32_t value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address_in(&mine[t], next)));
  uint64_t there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&mine[t]), "r"(next));
  value += *reinterpret_cast<const volatile uint32_t*>(there);
  uint32_t rank, index, clusters;
  asm volatile("getctarank.u64 %0, %1;" : "=r"(rank) : "l"(there));
  if (rank != next) asm volatile("trap;");
  asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(index));
  if (index != blockIdx.y % 2) asm volatile("trap;");
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
  if (clusters != gridDim.x / 2) asm volatile("trap;");
  asm volatile(
      "red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(address_in(&count, next))
      : "memory");
  cluster_barrier();
  out[block * 64 + t] = value + *const_cast<volatile uint32_t*>(&count);
}

// out[block][t] = in[block before of the cluster][t], which that one stores into this one's memory.
extern "C" __global__ void pass_on(const uint32_t* in, uint32_t* out) {
  __shared__ uint32_t inbox[64];
  __shared__ uint64_t ready;
  const uint32_t t = threadIdx.x, next = (cluster_rank() + 1) % cluster_blocks();
  if (t == 0) {
    init(&ready, 64);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address_in(&inbox[t], next)),
               "r"(in[blockIdx.x * 64 + t])
               : "memory");
  arrive_at<true>(&ready, next);
  wait<true>(&ready, 0);
  out[blockIdx.x * 64 + t] = inbox[t];
}
