// StepProgram: the kernels of a step, on their way to the stream. A step that only goes on with
// generated rows is the same list of launches, to the byte, time and again: tables lie in the same
// places and say what is new. So its launches are gathered, and a list that was run before is run
// as a CUDA graph, at the cost of one launch. What a list holds is all that decides: if memory has
// moved, it is another list. Owned by CudaOps; the engine's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_kernels.h"

namespace deltad {

class StepProgram {
 public:
  StepProgram(CudaDevice& device, const CudaKernels& kernels)
      : device_(device), kernels_(kernels) {}
  ~StepProgram();
  StepProgram(const StepProgram&) = delete;

  // A step that other ranks take part in, each with its own list, of which some entries need
  // theirs.
  class Together {
   public:
    virtual ~Together() = default;
    virtual Status run_list() = 0;
    // What graphs of several ranks take of this one's device.
    virtual size_t device_bytes() const = 0;
  };
  struct Entry {
    const char* name;  // null: the ranks meet
    cuda::Launch shape;
    size_t params;  // place in the list
    bool meeting() const { return name == nullptr; }
  };
  // Lists that are remembered: sizes of a batch × what its variants are made of.
  static constexpr size_t kMostKnown = 256;
  // CUDA does not say what a graph takes: an assumption, a kernel's parameters and its place. Not
  // measured.
  static constexpr size_t kNodeBytes = 1024;

  // Who runs lists from now on; null: this itself.
  void work_with(Together* others) { others_ = others; }
  // repeats: the step may be like others; else its kernels are launched as they come.
  void begin(bool repeats);
  bool gathers() const { return gathers_; }
  template <class Params>
  Status launch(const char* name, const cuda::Launch& shape, const Params& params) {
    static_assert(std::is_trivially_copyable_v<Params>);
    if (!gathers_) return kernels_.launch(device_.compute(), name, shape, params);
    gather(name, shape, &params, sizeof params);
    return {};
  }
  // Of a list that is gathered: an entry that needs the other ranks; what it says of them.
  template <class What>
  void add_meeting(const What& what) {
    static_assert(std::has_unique_object_representations_v<What>);
    gather(nullptr, {}, &what, sizeof what);
  }
  // Launches what was gathered, and from now on each kernel as it comes.
  Status flush();
  // The step's end: launches what was gathered, as a graph if that can be.
  Status end();

  // For who runs it: the list of the step that ends, and its number, which a list has as long as it
  // is remembered.
  std::span<const Entry> entries() const { return gathered_; }
  uint64_t number() { return remember().first.number; }
  Status launch(const Entry& entry) {
    return kernels_.launch_bytes(device_.compute(), entry.name, entry.shape,
                                 list_.data() + entry.params);
  }
  void count_replay() { ++replays_; }

  int64_t replays() const { return replays_; }  // steps that were graphs
  // What the graphs take of the device, as far as that is known.
  size_t device_bytes() const {
    return device_bytes_ + (others_ != nullptr ? others_->device_bytes() : 0);
  }

 private:
  struct Known {
    uint64_t number = 0;
    cudaGraphExec_t graph = nullptr;  // null: the list has run once, launch by launch
    size_t bytes = 0;
    uint64_t used = 0;
  };
  void gather(const char* name, const cuda::Launch& shape, const void* params, size_t bytes);
  // The list's, and whether it is new.
  std::pair<Known&, bool> remember();
  Status launch_gathered();
  Status capture(Known& known);
  void forget_oldest();

  CudaDevice& device_;
  const CudaKernels& kernels_;
  Together* others_ = nullptr;
  bool gathers_ = false;
  std::string list_;  // names, shapes and parameters, all bytes of them
  std::vector<Entry> gathered_;
  std::unordered_map<std::string, Known> known_;  // by list
  uint64_t steps_ = 0, numbers_ = 0;
  int64_t replays_ = 0;
  size_t device_bytes_ = 0;
};

}  // namespace deltad
