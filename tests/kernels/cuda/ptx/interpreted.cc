// Runs kernels' PTX by the interpreter.
#include "tests/kernels/cuda/ptx/kernel.h"

namespace deltad::cuda {

bool can_run(const std::string&) { return true; }

std::string kernel_folder() { return DELTAD_PTX; }

Share share_of(const std::string& arch, size_t every) {
  const auto& all = ptx::kArchitectures;
  const auto first =
      static_cast<size_t>(std::find(std::begin(all), std::end(all), arch) - std::begin(all));
  return {first, every * std::size(all)};
}

ptx::Outcome PtxFile::run(const char* kernel, const Launch& l, std::span<const std::byte> params,
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
  ptx::Options launch = options;
  launch.overlaps_previous = overlaps_previous && can_overlap_;
  launch.cluster = {l.cluster.x, l.cluster.y, l.cluster.z};
  return module_->run(kernel, {l.grid.x, l.grid.y, l.grid.z}, {l.block.x, l.block.y, l.block.z},
                      l.shared_bytes, params, memory, launch);
}

}  // namespace deltad::cuda
