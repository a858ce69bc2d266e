// Kernels of kernels/cuda as nvcc compiled them, launched like the emulator launches them as C++:
// on the buffers that the test made (emulator::DeviceBuffer), whose addresses are the host's. One
// of two files runs them: interpreted.cc their PTX on the CPU (test_cuda_ptx), ../card/on_card.cc
// the machine code on a card (test_cuda_card), without what weakens a kernel.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/kernels/cuda/launcher.h"
#include "tests/support/cuda_on_cpu/global_memory.h"
#include "tests/support/ptx/tests/ptx_run.h"

namespace deltad::cuda {

// Whether what was compiled for the architecture ("sm_90a") can run here.
bool can_run(const std::string& arch);
// The folder with ARCH/FILE.{ptx,cubin}.
std::string kernel_folder();
// Which of a list of batches an architecture's test takes: each `step`-th from `first`. The
// interpreter is slow, so the architectures share the list, or one batch of `every`; a card takes
// all of them.
struct Share {
  size_t first, step;
};
Share share_of(const std::string& arch, size_t every = 1);

class PtxFile {
 public:
  // kernels/cuda/FILE.cu, compiled for the architecture.
  PtxFile(const std::string& arch, const std::string& file)
      : path_(kernel_folder() + "/" + arch + "/" + file),
        module_(ptx::load_file(path_ + ".ptx")),
        can_overlap_(arch != "sm_80") {}

  ptx::Outcome run(const char* kernel, const Launch& l, std::span<const std::byte> params,
                   const ptx::Options& options, bool overlaps_previous);
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
  const std::string path_;  // without the ending
  std::unique_ptr<ptx::Module> module_;
  bool can_overlap_;
};

// Tests of kernels that lie in several files: their launcher, and one kernel to look at.
class PtxFilesTest : public testing::Test {
 protected:
  // files: of kernels/cuda.
  PtxFilesTest(const std::string& arch, std::initializer_list<const char*> files) : arch_(arch) {
    for (const char* file : files) files_.emplace_back(arch, file);
  }
  void SetUp() override {
    if (!can_run(arch_)) GTEST_SKIP() << arch_ << " does not run here";
  }

  PtxFile* file_of(const std::string& kernel) {
    for (PtxFile& file : files_) {
      if (file.has(kernel)) return &file;
    }
    ADD_FAILURE() << "no PTX has the kernel " << kernel;
    return nullptr;
  }
  // Runs a kernel from whichever file has it; keeps the outcome of `mutated_`.
  Launcher launcher() {
    return [this](const char* kernel, const Launch& shape, std::span<const std::byte> params,
                  const emulator::Options& emulated) {
      emulator::Report report;
      PtxFile* file = file_of(kernel);
      if (file == nullptr) return report;
      const bool mutated = kernel == mutated_;
      ptx::Outcome o = file->run(kernel, shape, params, mutated ? options_ : schedule_,
                                 emulated.overlaps_previous);
      if (o.fault) {
        report.faults.push_back({emulator::FaultKind::kOther, {}, 0, {}, o.fault->text()});
      }
      if (mutated) outcome_.add(std::move(o));
      return report;
    };
  }

  const std::string arch_;
  std::vector<PtxFile> files_;
  ptx::Options schedule_, options_;
  std::string mutated_;   // this kernel runs with options_, the others with schedule_
  ptx::Outcome outcome_;  // of all its launches
};

// Tests whose parameter is an architecture.
class ArchitectureTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!can_run(GetParam())) GTEST_SKIP() << GetParam() << " does not run here";
  }
};

}  // namespace deltad::cuda
