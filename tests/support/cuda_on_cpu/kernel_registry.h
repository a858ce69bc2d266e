// Kernels by name, as a library of device code has them. instance() is defined beside the list of
// the kernels of kernels/cuda (tests/kernels/cuda/kernels.cc). Filled before threads start.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "tests/support/cuda_on_cpu/launch.h"

namespace deltad::emulator {

struct Kernel {
  std::string name;
  size_t params_bytes;   // of its one parameter
  uint32_t max_threads;  // that a block may have: __launch_bounds__
  Report (*run)(const cuda::Launch&, const void* params, const Options&);
};

class KernelRegistry {
 public:
  static KernelRegistry& instance();

  template <auto kKernel>
  void add(std::string name, uint32_t max_threads) {
    add_as<kKernel>(std::move(name), max_threads, kKernel);
  }
  // Null if there is none.
  const Kernel* find(std::string_view name) const {
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
  }

 private:
  template <auto kKernel, class Params>
  void add_as(std::string name, uint32_t max_threads, void (*)(Params)) {
    static_assert(sizeof(Params) <= 4096, "more parameters than a launch may have");
    Kernel kernel = {name, sizeof(Params), max_threads,
                     [](const cuda::Launch& shape, const void* bytes, const Options& options) {
                       Params params;
                       std::memcpy(&params, bytes, sizeof params);
                       return launch(kKernel, shape, params, options);
                     }};
    kernels_.insert_or_assign(std::move(name), std::move(kernel));
  }

  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace deltad::emulator
