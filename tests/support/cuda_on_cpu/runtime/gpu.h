// The state of the emulated GPUs: what the calls of the runtime, cuBLASLt and NCCL share. Reached
// through a Call, which holds the lock.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"
#include "tests/support/cuda_on_cpu/runtime/handles.h"
#include "tests/support/cuda_on_cpu/runtime/include/cuda_runtime_api.h"
#include "tests/support/cuda_on_cpu/runtime/memory.h"
#include "tests/support/cuda_on_cpu/runtime/schedule.h"

namespace deltad::emulated_gpu {

struct Ranks;  // communicator.h

struct Device {
  cudaError_t error = cudaSuccess;  // that sticks
  std::set<int> peers;              // whose memory its kernels may touch
  std::unique_ptr<CUstream_st> null_stream;
  std::unique_ptr<CUstream_st> stray;  // of what is misplaced
};

class Gpu {
 public:
  explicit Gpu(const Options& options);
  ~Gpu();

  void fault(FaultKind kind, std::string what);
  void fail(int device, cudaError_t error);  // sticks, unless one does already

  const Options options;
  Mutex mutex;
  CondVar changed;  // something ran, or was handed over

  std::vector<Device> devices;
  std::vector<Fault> faults;
  Clock host;  // what the host, any thread of it, has seen
  Memory memory;
  Schedule schedule;
  Handles handles;

  struct Called {
    const char* name;
    uint32_t site;  // among `site_keys`
    int device;
  };
  std::vector<Called> calls;
  std::map<int, size_t> calls_of;                                    // device
  std::map<std::pair<int, std::string_view>, size_t> calls_of_name;  // of a device
  std::map<CallSite, uint32_t> sites;
  std::vector<std::string> site_keys;
  std::vector<std::string> launches;  // of kernels so far, captured ones among them
  std::vector<Failure> failures;
  std::vector<SyncSite> sync_sites;
  std::set<std::string> off;                              // sites
  std::set<std::pair<std::string, uint32_t>> work_sites;  // the work's name and its call's site
  std::set<std::string> misplaced;                        // keys of these
  cudaError_t next_work_error = cudaSuccess;              // what the call's work will fail with
  bool next_work_hangs = false;
  bool let_go = false;  // of what hangs
  int next_stream_number = 1;
  std::map<std::string, std::shared_ptr<Ranks>> ranks;  // by NCCL's id
};

}  // namespace deltad::emulated_gpu
