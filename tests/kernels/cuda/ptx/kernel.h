// Kernels' PTX, launched like the emulator launches them as C++: on the buffers that the test made
// (emulator::DeviceBuffer), whose addresses are the host's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "tests/kernels/cuda/launcher.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::cuda {

class PtxFile {
 public:
  // kernels/cuda/FILE.cu, compiled for the architecture.
  PtxFile(const std::string& arch, const std::string& file)
      : module_(ptx::load_file(std::string(DELTAD_PTX) + "/" + arch + "/" + file + ".ptx")),
        can_overlap_(arch != "sm_80") {}

  ptx::Outcome run(const char* kernel, const Launch& l, std::span<const std::byte> params,
                   const ptx::Options& options, bool overlaps_previous) {
    ptx::Memory memory;
    for (const auto& [base, r] : emulator::GlobalMemory::instance().ranges()) {
      const std::span bytes(r.base, r.bytes);
      const bool fresh = r.access == emulator::Access::kFresh;
      if (fresh || r.access == emulator::Access::kRead) {
        memory.add(r.name, std::span<const std::byte>(bytes), fresh);
      } else {
        memory.add(r.name, bytes);
      }
    }
    ptx::Options overlapping = options;
    overlapping.overlaps_previous = overlaps_previous && can_overlap_;
    return module_->run(kernel, {l.grid.x, l.grid.y, l.grid.z}, {l.block.x, l.block.y, l.block.z},
                        l.shared_bytes, params, memory, overlapping);
  }
  // For a case's run(): launches the kernel that it names. `out`: of all those launches.
  auto launcher(const ptx::Options& options, ptx::Outcome& out) {
    out = {};
    return [this, options, &out](const char* kernel, const Launch& l, const auto& p) {
      out.add(run(kernel, l, std::as_bytes(std::span(&p, 1)), options, true));
    };
  }
  bool has(const std::string& kernel) const {
    const std::vector<std::string> all = module_->kernels();
    return std::find(all.begin(), all.end(), kernel) != all.end();
  }
  ptx::Module& module() { return *module_; }

 private:
  std::unique_ptr<ptx::Module> module_;
  bool can_overlap_;
};

}  // namespace deltad::cuda
