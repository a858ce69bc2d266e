// The sampler's PTX against the fp64 oracle.
#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/sampler_case.h"

namespace deltad::cuda {
namespace {

class SamplerPtx : public ArchitectureTest {};
INSTANTIATE_TEST_SUITE_P(Architecture, SamplerPtx, testing::ValuesIn(ptx::kArchitectures));

TEST_P(SamplerPtx, EqualsTheOracle) {
  PtxFile file(GetParam(), "sampler");
  const SamplerCase c = sampler_case(521);
  ptx::Outcome o;
  const SamplerCase::Output out = c.run(0, c.rows(), file.launcher({}, o));
  ASSERT_FALSE(o.fault) << message(o);
  EXPECT_EQ(c.wrong(out), "");
}

TEST(SamplerPtxSites, Matter) {
  PtxFile file("sm_90a", "sampler");
  SamplerCase c = sampler_case(521);
  // The best token is the last, before changes and after them: to leave early shows. The last row
  // looks for its last token, as the last one of the case does: to go beyond shows.
  std::vector<float> logits(521, 0);
  logits.back() = 9;
  SampleRow greedy = c.plain(0);
  greedy.temperature = 0;
  c.add(greedy, logits);
  c.add(greedy, logits, {{0, 0.5f, -1}});
  SampleRow last = c.plain(1);
  last.top_k = 1;
  c.add(last, logits);
  ptx::expect_mutations_caught(
      file.module(), kSamplerKernel, 20, [&](const ptx::Options& options, ptx::Outcome& o) {
        const SamplerCase::Output out = c.run(0, c.rows(), file.launcher(options, o));
        return o.fault ? o.fault->text() : c.wrong(out);
      });
}

}  // namespace
}  // namespace deltad::cuda
