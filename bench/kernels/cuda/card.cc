#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "bench/kernels/cuda/bench.h"
#include "bench/random.h"
#include "tensor/float16.h"

namespace deltad::bench {

void fail(const std::string& message) {
  std::fprintf(stderr, "bench_cuda: %s\n", message.c_str());
  std::exit(1);
}

void require(const Status& status) {
  if (!status.ok()) fail(std::string(status.message()));
}

namespace {
uint64_t random_state = 1;
}  // namespace

std::vector<uint16_t> random_bf16(size_t count, float size) {
  std::vector<uint16_t> values(count);
  for (uint16_t& v : values) {
    const float unit = static_cast<float>(next_random(random_state) >> 40) * 0x1p-23f - 1;
    v = f32_to_bf16(2 * size * unit);
  }
  return values;
}

std::vector<uint8_t> random_bits(size_t bytes) {
  std::vector<uint8_t> bits(bytes);
  for (uint8_t& b : bits) b = static_cast<uint8_t>(next_random(random_state) >> 56);
  return bits;
}

Card::Card(bool quick) : quick_(quick) {
  auto device = CudaDevice::open(0);
  require(device.status());
  device_ = std::move(*device);
  require(device_->use());
  auto kernels = CudaKernels::load(*device_);
  require(kernels.status());
  kernels_ = std::move(*kernels);
}

int32_t Card::multiprocessors() {
  int count = 0;
  require(CUDA_STATUS(*device_, cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0),
                      "a benchmark"));
  return count;
}

DeviceMemory Card::zeros(size_t bytes) {
  auto memory = DeviceMemory::make(*device_, device_->compute(), bytes, "a benchmark");
  require(memory.status());
  return std::move(*memory);
}

DeviceMemory Card::upload(const void* data, size_t bytes) {
  DeviceMemory memory = zeros(bytes);
  require(CUDA_STATUS(
      *device_,
      cudaMemcpyAsync(memory.data(), data, bytes, cudaMemcpyHostToDevice, device_->compute()),
      "a benchmark's data"));
  wait();
  return memory;
}

DeviceMemory Card::copy_of(const DeviceMemory& from) {
  DeviceMemory memory = zeros(from.bytes());
  require(CUDA_STATUS(*device_,
                      cudaMemcpyAsync(memory.data(), from.data(), from.bytes(),
                                      cudaMemcpyDeviceToDevice, device_->compute()),
                      "a benchmark's data"));
  return memory;
}

void Card::download(void* to, const void* from, size_t bytes) {
  require(CUDA_STATUS(*device_,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device_->compute()),
                      "a benchmark's result"));
  wait();
}

void Card::wait() {
  require(CUDA_STATUS(*device_, cudaStreamSynchronize(device_->compute()), "a benchmark"));
}

double Card::seconds_of(const std::function<void(int call)>& work, Launches launches) {
  const int rounds = quick_ ? 1 : 7, calls = quick_ ? 2 : 20;
  const cudaStream_t stream = device_->compute();
  const auto check = [&](cudaError_t error, const char* call) {
    if (error != cudaSuccess) require(device_->check(error, call, "timing"));
  };
  const auto all_calls = [&] {
    for (int call = 0; call < calls; ++call) work(call);
  };
  all_calls();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t program = nullptr;
  if (launches == Launches::kGraph) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    all_calls();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&program, graph, 0), "cudaGraphInstantiate");
  }
  const auto launch = [&] {
    if (program == nullptr)
      all_calls();
    else
      check(cudaGraphLaunch(program, stream), "cudaGraphLaunch");
  };
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreateWithFlags(&begin, cudaEventDefault), "cudaEventCreateWithFlags");
  check(cudaEventCreateWithFlags(&end, cudaEventDefault), "cudaEventCreateWithFlags");
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    launch();  // one before it, so that the card never waits for the host between the events
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    launch();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    seconds.push_back(milliseconds * 1e-3 / calls);
  }
  check(cudaEventDestroy(begin), "cudaEventDestroy");
  check(cudaEventDestroy(end), "cudaEventDestroy");
  if (program != nullptr) check(cudaGraphExecDestroy(program), "cudaGraphExecDestroy");
  if (graph != nullptr) check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[static_cast<size_t>(rounds / 2)];
}

double copy_rate(Card& card) {
  const size_t bytes = card.quick() ? 1 << 16 : size_t{2} << 30;
  const DeviceMemory a = card.zeros(bytes), b = card.zeros(bytes);
  const auto copy = [&](int) {
    require(CUDA_STATUS(card.device(),
                        cudaMemcpyAsync(b.data(), a.data(), bytes, cudaMemcpyDeviceToDevice,
                                        card.device().compute()),
                        "measuring copies"));
  };
  // An idle card's clocks are low, and take a while to rise.
  for (int i = 0; i < (card.quick() ? 1 : 300); ++i) copy(i);
  const double seconds = card.seconds_of(copy, Card::Launches::kOneByOne);
  return 2 * static_cast<double>(bytes) / seconds;
}

}  // namespace deltad::bench
