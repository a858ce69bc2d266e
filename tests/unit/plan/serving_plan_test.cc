// Plans by hand-computed cases, on a device of round numbers; and what is refused.
#include "plan/serving_plan.h"

#include <gtest/gtest.h>

#include "plan/model_shapes.h"

namespace deltad {
namespace {

PlanRequest seventy(int64_t variants, int64_t concurrency) {
  PlanRequest request;
  request.model = *planned_model("70b");
  request.devices = *parse_devices("8xH100-80GB");
  request.variants = variants;
  request.concurrency = concurrency;
  request.storage_rate = 3e9;
  return request;
}

// Per GPU: 72e9 usable; base (137.0e9 + 4.2e9)/8 = 17.64e9; a request of 4096 tokens 40 KiB each:
// 167 772 160; a variant 1.07e9 and α.
TEST(ServingPlan, AccountsForEveryByteOfADevice) {
  const ServingPlan plan = *make_plan(seventy(20, 64));
  EXPECT_EQ(plan.tensor_parallel, 8);
  EXPECT_EQ(plan.memory, 80000000000);
  EXPECT_EQ(plan.reserved, 8000000000);
  EXPECT_EQ(plan.kv, int64_t{64} * 4096 * 40960);
  EXPECT_EQ(plan.kv_blocks, 64 * 256);
  EXPECT_EQ(plan.reserved + plan.base + plan.workspace + plan.kv + plan.variants + plan.left,
            plan.memory);
  EXPECT_TRUE(plan.all_fits);
}

TEST(ServingPlan, FindsTheKnees) {
  const int64_t knee = make_plan(seventy(20, 64))->variant_knee;
  EXPECT_TRUE(make_plan(seventy(knee, 64))->all_fits);
  const ServingPlan over = *make_plan(seventy(knee + 1, 64));
  EXPECT_FALSE(over.all_fits);
  EXPECT_EQ(over.resident, knee);
  const int64_t requests = make_plan(seventy(20, 64))->request_knee;
  EXPECT_TRUE(make_plan(seventy(20, requests))->all_fits);
  EXPECT_FALSE(make_plan(seventy(20, requests + 1))->all_fits);
}

// One row and no variant: the base without the embeddings, and 4096 tokens, at 3.35 TB/s.
TEST(ServingPlan, BoundsTheSpeedByMemoryTraffic) {
  const ServingPlan plan = *make_plan(seventy(0, 1));
  const double base = 2 * (68451041280.0 + 1050673152) / 8 + 4.0 * 161 * 8192;
  EXPECT_NEAR(plan.step_seconds, (base + 4096 * 40960.0) / 3.35e12, 1e-9);
  EXPECT_NEAR(plan.tokens_per_second, 1 / plan.step_seconds, 1e-6);
  EXPECT_EQ(plan.bound_by, "base");
  EXPECT_EQ(make_plan(seventy(30, 30))->bound_by, "variants");
  PlanRequest long_ones = seventy(0, 64);
  long_ones.context = 16384;
  EXPECT_EQ(make_plan(long_ones)->bound_by, "KV");
  PlanRequest short_ones = seventy(0, 1000);
  short_ones.context = 16;
  EXPECT_EQ(make_plan(short_ones)->bound_by, "arithmetic");
}

TEST(ServingPlan, TakesLoadTimesFromTheStorage) {
  const ServingPlan plan = *make_plan(seventy(1, 1));
  EXPECT_NEAR(plan.base_load_seconds, 141.1e9 / 3e9, 0.1);
  EXPECT_NEAR(plan.variant_load_seconds, 8.58e9 / 3e9, 0.05);
}

TEST(ServingPlan, GivesEachReplicaItsShareOfTheRequests) {
  PlanRequest request = seventy(4, 64);
  request.model = *planned_model("8b");
  request.tensor_parallel = 1;
  const ServingPlan plan = *make_plan(request);
  EXPECT_EQ(plan.replicas, 8);
  EXPECT_EQ(plan.running, 8);
  EXPECT_NEAR(plan.tokens_per_second, 64 / plan.step_seconds, 1e-6);
}

TEST(ServingPlan, SaysIfTheBaseDoesNotFit) {
  PlanRequest request = seventy(1, 1);
  request.devices = *parse_devices("L4-24GB");
  const ServingPlan plan = *make_plan(request);
  EXPECT_FALSE(plan.base_fits);
  EXPECT_LT(plan.left, 0);
  EXPECT_EQ(plan.resident, 0);
}

TEST(ServingPlan, TakesShapesFromGgufFilesToo) {
  const ModelConfig folder = *planned_model(DELTAD_GOLDEN "/models/llama");
  const ModelConfig file = *planned_model(DELTAD_GOLDEN "/gguf/llama-q4_0.gguf");
  EXPECT_EQ(base_bytes(file), base_bytes(folder));
  EXPECT_EQ(kv_block_bytes(file), kv_block_bytes(folder));
}

TEST(ServingPlan, RefusesWhatMakesNoSense) {
  PlanRequest request = seventy(1, 1);
  request.context = 1000000;
  EXPECT_NE(make_plan(request).status().message().find("131072"), std::string::npos);
  request = seventy(1, 1);
  request.tensor_parallel = 3;
  EXPECT_NE(make_plan(request).status().message().find("divisor"), std::string::npos);
  EXPECT_NE(parse_devices("8xH10").status().message().find("H100-80GB"), std::string::npos);
  EXPECT_NE(parse_devices("cpu:lots").status().message().find("cpu:24GiB"), std::string::npos);
  for (const char* bad : {"0xH100-80GB", "", "-1xL4-24GB", "cpu:"})
    EXPECT_FALSE(parse_devices(bad).ok()) << bad;
  for (const char* bad : {"3", "GB/s", "-3GB/s", "nanGB/s", "3GB"})
    EXPECT_FALSE(parse_rate(bad).ok()) << bad;
  EXPECT_EQ(*parse_rate("1.5GB/s"), 1.5e9);
  EXPECT_NE(planned_model("/nonexistent").status().message().find("config.json"),
            std::string::npos);
}

}  // namespace
}  // namespace deltad
