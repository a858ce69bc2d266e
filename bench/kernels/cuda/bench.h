// What the benchmarks of CUDA kernels share: one card, timing by its events, random data, the
// table. A benchmark checks its result against fp64 before it reports a line. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_kernels.h"
#include "backend/cuda/cuda_memory.h"

namespace deltad::bench {

// Writes the message and ends the program.
[[noreturn]] void fail(const std::string& message);
void require(const Status& status);

// Random values that bf16 holds, mean 0, mean of |v| `size`.
std::vector<uint16_t> random_bf16(size_t count, float size);
std::vector<uint8_t> random_bits(size_t bytes);

class Card {
 public:
  // quick: tiny sizes and few repeats, to see that all of it works.
  explicit Card(bool quick);

  CudaDevice& device() { return *device_; }
  bool quick() const { return quick_; }
  int32_t multiprocessors();
  // Bytes among which a benchmark goes around, so that no cache holds what it reads.
  int64_t cold_bytes() const { return quick_ ? 1 << 16 : int64_t{512} << 20; }

  DeviceMemory zeros(size_t bytes);
  template <typename T>
  DeviceMemory upload(const std::vector<T>& values) {
    return upload(values.data(), values.size() * sizeof(T));
  }
  DeviceMemory copy_of(const DeviceMemory& from);
  template <typename T>
  std::vector<T> download(const DeviceMemory& from, size_t count) {
    std::vector<T> values(count);
    download(values.data(), from.data(), count * sizeof(T));
    return values;
  }
  // A kernel that the daemon does not launch, to be launched after this.
  void find(const char* kernel, uint32_t shared_bytes) {
    require(kernels_->find(kernel, shared_bytes));
  }
  template <class Params>
  void launch(const char* kernel, const cuda::Launch& shape, const Params& params) {
    require(kernels_->launch(device_->compute(), kernel, shape, params));
  }
  void wait();

  // kGraph: a graph of many calls, as a step's are, so that small kernels do not wait for this
  // thread. Work that waits for the card or takes memory does so in the first calls, which do not
  // count.
  enum class Launches { kGraph, kOneByOne };
  // Seconds of one call of `work`, which is given its number, by the card's events: the median of
  // several rounds of many calls.
  double seconds_of(const std::function<void(int call)>& work,
                    Launches launches = Launches::kGraph);

 private:
  DeviceMemory upload(const void* data, size_t bytes);
  void download(void* to, const void* from, size_t bytes);

  const bool quick_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<CudaKernels> kernels_;
};

// Bytes a second of a copy within the card's memory, read and written bytes together.
double copy_rate(Card& card);
// Print a table each: the linear layers of generated rows and of prompts beside cuBLASLt's;
// attention over long contexts.
void bench_linear_decode(Card& card, double copy_rate);
void bench_linear_prefill(Card& card);
void bench_attention_decode(Card& card, double copy_rate);

}  // namespace deltad::bench
