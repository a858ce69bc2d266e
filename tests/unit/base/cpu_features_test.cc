#include "base/cpu_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace deltad {
namespace {

using ::testing::HasSubstr;

class CpuFeaturesTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("DELTAD_CPU_ISA"); }
  void TearDown() override { unsetenv("DELTAD_CPU_ISA"); }
};

TEST_F(CpuFeaturesTest, ChoosesTheFastestByDefault) {
  EXPECT_EQ(*choose_isa(""), fastest_isa());
  EXPECT_LE(fastest_isa(), best_isa());
}

TEST_F(CpuFeaturesTest, TakesEveryNameUpToTheBest) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    const auto chosen = choose_isa(isa_name(isa));
    ASSERT_EQ(chosen.ok(), isa <= best_isa()) << isa_name(isa);
    if (chosen.ok()) {
      EXPECT_EQ(*chosen, isa);
    } else {
      EXPECT_THAT(chosen.status().message(), HasSubstr(isa_name(best_isa())));
    }
  }
}

TEST_F(CpuFeaturesTest, ReadsTheEnvironmentOnlyWithoutAName) {
  setenv("DELTAD_CPU_ISA", "scalar", 1);
  EXPECT_EQ(*choose_isa(""), Isa::kScalar);
  setenv("DELTAD_CPU_ISA", "sse9", 1);
  EXPECT_EQ(*choose_isa("scalar"), Isa::kScalar);
  EXPECT_THAT(choose_isa("").status().message(), HasSubstr("DELTAD_CPU_ISA"));
}

TEST_F(CpuFeaturesTest, NamesTheChoices) {
  const auto chosen = choose_isa("neon");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(chosen.status().message(), HasSubstr("avx512_bf16"));
}

}  // namespace
}  // namespace deltad
