// StepProgram: the kernels of a step, on their way to the stream. A step that only goes on with
// generated rows is the same list of launches, to the byte, time and again: tables lie in the same
// places and say what is new. So its launches are gathered, and a list that was run before is run
// as a CUDA graph, at the cost of one launch. What a list holds is all that decides: if memory has
// moved, it is another list. Owned by CudaOps; the engine's thread.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "backend/cuda/cuda_kernels.h"

namespace deltad {

class StepProgram {
 public:
  StepProgram(CudaDevice& device, const CudaKernels& kernels)
      : device_(device), kernels_(kernels) {}
  ~StepProgram();
  StepProgram(const StepProgram&) = delete;

  // repeats: the step may be like others; else its kernels are launched as they come.
  void begin(bool repeats);
  template <class Params>
  Status launch(const char* name, const cuda::Launch& shape, const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
    if (!gathers_) return kernels_.launch(device_.compute(), name, shape, params);
    gather(name, shape, &params, sizeof params);
    return {};
  }
  // Launches what was gathered, and from now on each kernel as it comes.
  Status flush();
  // The step's end: launches what was gathered, as a graph if that can be.
  Status end();

  int64_t replays() const { return replays_; }  // steps that were graphs
  // What the graphs take of the device, as far as that is known.
  size_t device_bytes() const { return device_bytes_; }

 private:
  struct Gathered {
    const char* name;
    cuda::Launch shape;
    size_t params;  // place in list_
  };
  struct Known {
    cudaGraphExec_t graph = nullptr;  // null: the list has run once, launch by launch
    size_t bytes = 0;
    uint64_t used = 0;
  };
  void gather(const char* name, const cuda::Launch& shape, const void* params, size_t bytes);
  Status launch_gathered();
  Status capture(Known& known);
  void forget_oldest();

  CudaDevice& device_;
  const CudaKernels& kernels_;
  bool gathers_ = false;
  std::string list_;  // names, shapes and parameters, all bytes of them
  std::vector<Gathered> gathered_;
  std::unordered_map<std::string, Known> known_;  // by list
  uint64_t steps_ = 0;
  int64_t replays_ = 0;
  size_t device_bytes_ = 0;
};

}  // namespace deltad
