// The PTX of repacking and of bit planes, for every architecture.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/repack_case.h"

namespace deltad::cuda {
namespace {

class RepackPtx : public ArchitectureTest {
 protected:
  // The case is right in every order, and needs each barrier, wait and bound of the kernel.
  // Repacking is no part of a step.
  template <class Case>
  void expect_right(const char* file_name, bool of_a_step) {
    PtxFile file(GetParam(), file_name);
    const Case c;
    std::string kernel;
    const auto run = [&](const ptx::Options& options, ptx::Outcome& o) {
      return c.run([&](const char* name, const Launch& shape, const auto& p) {
        kernel = name;
        o = file.run(name, shape, std::as_bytes(std::span(&p, 1)), options, of_a_step);
      });
    };
    for (const ptx::Options& options : ptx::schedules()) {
      ptx::Outcome o;
      const auto out = run(options, o);
      ASSERT_FALSE(o.fault) << message(o);
      EXPECT_EQ(c.wrong(out), "");
    }
    ptx::expect_mutations_caught(file.module(), kernel, 3,
                                 [&](const ptx::Options& options, ptx::Outcome& o) {
                                   const auto out = run(options, o);
                                   return o.fault ? o.fault->text() : c.wrong(out);
                                 });
  }
};
INSTANTIATE_TEST_SUITE_P(Architecture, RepackPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(RepackPtx, PutsEachElementInItsFragment) { expect_right<RepackBaseCase>("repack", false); }
TEST_P(RepackPtx, PutsEachBitInItsFragment) { expect_right<RepackSignsCase>("repack", false); }
TEST_P(RepackPtx, MakesBitPlanes) { expect_right<SignPlanesCase>("sign_planes", true); }

}  // namespace
}  // namespace deltad::cuda
