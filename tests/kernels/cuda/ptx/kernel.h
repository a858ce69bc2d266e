// A kernel's PTX, launched like the emulator launches it as C++: on the buffers that the test made
// (emulator::DeviceBuffer), whose addresses are the host's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/launch.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::cuda {

class PtxKernel {
 public:
  // kernels/cuda/FILE.cu, compiled for the architecture.
  PtxKernel(const std::string& arch, const std::string& file, std::string name)
      : module_(ptx::load_file(std::string(DELTAD_PTX) + "/" + arch + "/" + file + ".ptx")),
        name_(std::move(name)) {}

  template <class Params>
  ptx::Outcome run(const Launch& l, const Params& p, const ptx::Options& options) {
    ptx::Memory memory;
    for (const auto& [base, r] : emulator::GlobalMemory::instance().ranges()) {
      const std::span bytes(r.base, r.bytes);
      if (r.access == emulator::Access::kRead) {
        memory.add(r.name, std::span<const std::byte>(bytes));
      } else {
        memory.add(r.name, bytes);
      }
    }
    return module_->run(name_, {l.grid.x, l.grid.y, l.grid.z}, {l.block.x, l.block.y, l.block.z},
                        l.shared_bytes, std::as_bytes(std::span(&p, 1)), memory, options);
  }
  // As a case wants it: a function of the shape and the parameters.
  auto launcher(const ptx::Options& options, ptx::Outcome& out) {
    return [this, &options, &out](const Launch& l, const auto& p) { out = run(l, p, options); };
  }

  ptx::Module& module() { return *module_; }
  const std::string& name() const { return name_; }

 private:
  std::unique_ptr<ptx::Module> module_;
  std::string name_;
};

}  // namespace deltad::cuda
