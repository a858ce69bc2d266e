// Models on several emulated GPUs: what the tests of ranks share.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/request_life.h"
#include "tests/unit/parallel/stepper.h"

namespace deltad::testing {

inline std::vector<VariantRef> load_all(const BaseModel& base,
                                        const std::vector<std::string>& paths) {
  std::vector<VariantRef> variants;
  for (const std::string& path : paths)
    variants.push_back(path.empty() ? nullptr : load_variant_of(base, path));
  return variants;
}

// The emulated GPUs of each test, and nothing found on them or left.
class RanksTest : public ::testing::Test {
 protected:
  static emulated_gpu::Options options(emulated_gpu::Order order = emulated_gpu::Order::kLatest,
                                       uint32_t seed = 1) {
    emulated_gpu::Options options;
    options.devices = 8;
    options.order = order;
    options.seed = seed;
    options.site_frames = 1;
    return options;
  }
  void SetUp() override { emulated_gpu::reset(options()); }
  void TearDown() override {
    EXPECT_EQ(emulated_gpu::report(), "");
    EXPECT_EQ(emulated_gpu::leaks(), "");
    emulated_gpu::reset();
  }

  // A model that is made up, with a variant of every kind.
  std::vector<std::string> write_model(const ModelConfig& config) {
    write_random_model(folder_, config, 1);
    write_random_delta(folder_.file("signs"), config, {2, true, false, 0}, 2);
    write_random_delta(folder_.file("all"), config, {1, false, true, 21}, 3);
    write_random_lora(lora_, config, 4, 4);
    return {"", folder_.file("signs"), folder_.file("all"), lora_.path()};
  }
  TempFolder folder_, lora_;
};

}  // namespace deltad::testing
