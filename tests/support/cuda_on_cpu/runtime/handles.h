// Streams, events, graphs and libraries that the host has made. Destroyed ones are kept aside, so
// that no new one has their address and their use is noticed. Under the runtime's lock.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/cuda_on_cpu/runtime/call_site.h"
#include "tests/support/cuda_on_cpu/runtime/include/driver_types.h"
#include "tests/support/cuda_on_cpu/runtime/operation.h"

namespace deltad::emulator {
struct Kernel;
}

struct CUevent_st;

namespace deltad::emulated_gpu {

struct Capture;

struct Handle {
  const char* kind;
  deltad::emulated_gpu::CallSite made_at;
  bool destroyed = false;
};

// A node of a graph: work, and the nodes before it.
struct Node {
  std::shared_ptr<const Work> work;
  std::vector<size_t> after;
  size_t branch;                // which of the captured streams it was in
  CUevent_st* event = nullptr;  // that each launch records
};

}  // namespace deltad::emulated_gpu

struct CUstream_st : deltad::emulated_gpu::Handle {
  int number = 0, device = 0, priority = 0;
  unsigned flags = 0;
  deltad::emulated_gpu::Timeline timeline = 0;
  std::shared_ptr<deltad::emulated_gpu::Operation> last = nullptr;
  std::shared_ptr<deltad::emulated_gpu::Capture> capture = nullptr;
  std::vector<size_t> captured = {};  // nodes that the next one comes after
  std::string text() const;
};

struct CUevent_st : deltad::emulated_gpu::Handle {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<deltad::emulated_gpu::Operation> recorded = nullptr;
  std::shared_ptr<deltad::emulated_gpu::Capture> capture = nullptr;  // recorded while captured
  std::vector<size_t> captured = {};
};

struct CUgraph_st : deltad::emulated_gpu::Handle {
  std::vector<deltad::emulated_gpu::Node> nodes = {};
  size_t branches = 0;
};

struct CUgraphExec_st : deltad::emulated_gpu::Handle {
  std::vector<deltad::emulated_gpu::Node> nodes = {};
  std::vector<deltad::emulated_gpu::Timeline> timelines = {};       // of the branches
  std::vector<size_t> bytes = {};                                   // of each device's memory
  std::shared_ptr<deltad::emulated_gpu::Operation> last = nullptr;  // of its last launch
};

struct CUlib_st : deltad::emulated_gpu::Handle {};

struct CUkern_st : deltad::emulated_gpu::Handle {
  const CUlib_st* library = nullptr;
  const deltad::emulator::Kernel* kernel = nullptr;
  std::map<int, int> shared_limit = {};  // by device; 48 KiB if it was not set
};

namespace deltad::emulated_gpu {

class Handles {
 public:
  template <class T>
  T* add(std::unique_ptr<T> handle) {
    T* made = handle.get();
    table<T>().by_address[made] = made;
    table<T>().made.push_back(std::move(handle));
    return made;
  }
  // Null if it is none, or was destroyed.
  template <class T>
  T* find(const void* handle) {
    const auto& all = table<T>().by_address;
    const auto found = all.find(handle);
    return found == all.end() || found->second->destroyed ? nullptr : found->second;
  }
  // Destroyed ones too: a stream's work goes on. In the order in which they were made, so that
  // nothing depends on addresses.
  template <class T, class Act>
  void for_each_ever(Act act) {
    for (const auto& handle : table<T>().made) act(*handle);
  }
  template <class T, class Act>
  void for_each(Act act) {
    for_each_ever<T>([&](T& handle) {
      if (!handle.destroyed) act(handle);
    });
  }
  // Objects of libraries, which are plain memory: only that they are there.
  void add_plain(const void* object, const char* kind, const CallSite& site) {
    plain_[object] = {kind, site};
  }
  bool remove_plain(const void* object) { return plain_.erase(object) > 0; }
  bool has_plain(const void* object) const { return plain_.contains(object); }
  std::string leaks() const;

 private:
  template <class T>
  struct Table {
    std::vector<std::unique_ptr<T>> made;
    std::map<const void*, T*> by_address;
  };
  template <class T>
  Table<T>& table() {
    return std::get<Table<T>>(tables_);
  }

  std::tuple<Table<CUstream_st>, Table<CUevent_st>, Table<CUgraph_st>, Table<CUgraphExec_st>,
             Table<CUlib_st>, Table<CUkern_st>>
      tables_;
  std::map<const void*, Handle> plain_;
};

}  // namespace deltad::emulated_gpu
