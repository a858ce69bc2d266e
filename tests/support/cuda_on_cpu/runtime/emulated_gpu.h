// How a test sets up the emulated GPUs, breaks them, and learns what was found. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace deltad::emulated_gpu {

enum class Order : uint8_t {
  kEager,   // work runs as soon as it may
  kLatest,  // only when somebody waits for it, the newest that can run first
  kRandom,  // now and then, any that can run
};

struct Options {
  int devices = 1;
  size_t memory_bytes = size_t{1} << 30;  // of each device
  size_t graph_node_bytes = 1024;         // that an executable graph takes of it for each node
  int most_pitch = 0x7fffffff;            // of copies in two dimensions
  Order order = Order::kLatest;
  uint32_t seed = 1;
  // Pending work that nobody has asked for runs by itself after so long a silence; 0: never.
  int idle_ms = 0;
  int site_frames = 3;             // callers that make up a call's site, wrappers included
  bool pageable_is_fault = false;  // an asynchronous copy from or to memory that is not pinned
  int peers = 0;                   // devices reach the others of the same so many; 0: all, 1: none
  bool nccl = true;                // whether the machine has it
  bool races_in_kernels = true;    // looked for: not where a test is about other things
  bool nccl_abort_waits = false;   // ncclCommAbort returns after let_go() only
};

enum class FaultKind : uint8_t {
  kRace,          // two accesses that nothing orders
  kBounds,        // a copy beyond an allocation, or memory that is none
  kFreed,         // memory freed while in use, used after, or freed twice
  kPinnedMemory,  // the host wrote to pinned memory while a copy was under way
  kKernel,        // what the emulator of device code found in a launch
  kMisuse,        // a call with a handle, a device or in a state in which it is not allowed
};

struct Fault {
  FaultKind kind;
  std::string what;
};

// Starts anew: devices without memory, streams or faults. No thread may be in a call.
void reset(const Options& options = {});

std::vector<Fault> faults();
// Faults, one a line; "" if there are none.
std::string report();
// What was not freed or destroyed, one a line with where it was made.
std::string leaks();

size_t allocated_bytes(int device = 0);
size_t peak_bytes(int device = 0);
size_t pinned_bytes();  // registered memory included

// Whether programs find NCCL.
bool has_nccl();

// Calls of the runtime, cuBLASLt and NCCL, numbered from 0. Not counted: those that only tell the
// last error or an error's name.
struct CallRecord {
  std::string name;
  std::string site;  // CallSite::key()
  int device;        // the calling thread's
};
size_t call_count();
std::vector<CallRecord> calls();

// Launches of kernels that were accepted, in order, those of captures among them (a graph's own
// launches are not): "deltad_rms_norm grid 3x1x1 block 256x1x1 shared 32".
std::vector<std::string> launches();

// The call with this number (device ≥ 0: among those of threads at that device, whose order does
// not depend on the others'; with a name too: among its calls of that, for programs that ask in
// loops) has
// no effect and returns the error (a call that frees or destroys does so all the same); `sticky`:
// from then on, all calls do, of that device. at_execution: instead, the call succeeds and the work
// that it handed over fails, which is sticky always. hangs: the work does not end before let_go().
struct Failure {
  size_t call;
  int error;  // a cudaError_t; cuBLASLt and NCCL have their own way to say it
  bool sticky = false;
  bool at_execution = false;
  bool hangs = false;
  int device = -1;
  std::string name = {};
};
void inject(const Failure& failure);
void let_go();

// Call sites of what orders work: waits for events, records, synchronisation. A site that is
// switched off does nothing and succeeds.
struct SyncSite {
  std::string key;   // the same in each run of one program
  std::string call;  // "cudaStreamWaitEvent"
};
std::vector<SyncSite> sync_sites();  // reached since reset()
void switch_off(const std::string& key);
// Kernels, copies and frees in the order of a stream, by call site. What is misplaced goes to
// another stream than its own, one that nothing waits for and that waits for nothing.
struct WorkSite {
  std::string key;
  std::string text;  // "deltad_rms_norm at CudaKernels::launch_bytes"
};
std::vector<WorkSite> work_sites();  // reached since reset()
void misplace(const std::string& key);
// The function and its callers, by the program's symbols.
std::string describe_site(const std::string& key);

}  // namespace deltad::emulated_gpu
