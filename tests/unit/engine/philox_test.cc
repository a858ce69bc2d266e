#include "engine/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace deltad {
namespace {

using ::testing::ElementsAre;

// The known answers published with the algorithm (Random123, kat_vectors).
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox4x32_10({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  constexpr uint32_t f = 0xffffffffu;
  EXPECT_THAT(philox4x32_10({f, f, f, f}, {f, f}),
              ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(philox4x32_10({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                            {0xa4093822u, 0x299f31d0u}),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(Philox, UniformDependsOnSeedChoiceAndPosition) {
  std::set<double> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32})
    for (uint32_t choice = 0; choice < 3; ++choice)
      for (uint64_t position = 0; position < 5; ++position) {
        const double u = philox_uniform(seed, choice, position);
        EXPECT_GE(u, 0);
        EXPECT_LT(u, 1);
        EXPECT_EQ(u, philox_uniform(seed, choice, position));
        seen.insert(u);
      }
  EXPECT_EQ(seen.size(), 45u);
}

TEST(Philox, UniformIsUniform) {
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0;
  for (uint64_t position = 0; position < kDraws; ++position) {
    const double u = philox_uniform(42, 0, position);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
}

}  // namespace
}  // namespace deltad
