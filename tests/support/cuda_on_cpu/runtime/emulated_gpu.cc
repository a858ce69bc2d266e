#include "tests/support/cuda_on_cpu/runtime/emulated_gpu.h"

#include <algorithm>

#include "base/check.h"
#include "tests/support/cuda_on_cpu/runtime/call.h"

namespace deltad::emulated_gpu {

std::vector<Fault> faults() {
  const MutexLock lock(gpu().mutex);
  return gpu().faults;
}

std::string report() {
  std::string all;
  for (const Fault& fault : faults()) {
    constexpr const char* kNames[] = {"race",          "out of bounds", "freed memory",
                                      "pinned memory", "kernel",        "misuse"};
    all += std::string(kNames[static_cast<size_t>(fault.kind)]) + ": " + fault.what + "\n";
  }
  return all;
}

std::string leaks() {
  const MutexLock lock(gpu().mutex);
  return gpu().memory.leaks() + gpu().handles.leaks();
}

size_t allocated_bytes(int device) {
  const MutexLock lock(gpu().mutex);
  return gpu().memory.allocated(device);
}

size_t peak_bytes(int device) {
  const MutexLock lock(gpu().mutex);
  return gpu().memory.peak(device);
}

size_t pinned_bytes() {
  const MutexLock lock(gpu().mutex);
  return gpu().memory.pinned();
}

bool has_nccl() {
  const MutexLock lock(gpu().mutex);
  return gpu().options.nccl;
}

size_t call_count() {
  const MutexLock lock(gpu().mutex);
  return gpu().calls.size();
}

std::vector<CallRecord> calls() {
  const MutexLock lock(gpu().mutex);
  std::vector<CallRecord> all;
  for (const auto& call : gpu().calls)
    all.push_back({call.name, gpu().site_keys[call.site], call.device});
  return all;
}

std::vector<std::string> launches() {
  const MutexLock lock(gpu().mutex);
  return gpu().launches;
}

void inject(const Failure& failure) {
  const MutexLock lock(gpu().mutex);
  gpu().failures.push_back(failure);
}

void let_go() {
  const MutexLock lock(gpu().mutex);
  gpu().let_go = true;
  gpu().changed.notify_all();
}

std::vector<SyncSite> sync_sites() {
  const MutexLock lock(gpu().mutex);
  return gpu().sync_sites;
}

void switch_off(const std::string& key) {
  const MutexLock lock(gpu().mutex);
  gpu().off.insert(key);
}

std::vector<WorkSite> work_sites() {
  const MutexLock lock(gpu().mutex);
  std::vector<WorkSite> all;
  for (const auto& [name, site] : gpu().work_sites) {
    const std::string& key = gpu().site_keys[site];
    all.push_back({name + " " + key, name + " at " + CallSite::text_of(key)});
  }
  return all;
}

void misplace(const std::string& key) {
  const MutexLock lock(gpu().mutex);
  gpu().misplaced.insert(key);
}

std::string describe_site(const std::string& key) { return CallSite::text_of(key); }

}  // namespace deltad::emulated_gpu
