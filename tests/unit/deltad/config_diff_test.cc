#include "deltad/config_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "deltad/config.h"

namespace deltad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Config config(const std::string& yaml) {
  Config out;
  const Status status = read_config("base: /b\n" + yaml, "/c/deltad.yaml", &out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

Result<ConfigDiff> between(const std::string& now, const std::string& fresh) {
  return diff(config(now), config(fresh));
}

std::string refused(const std::string& now, const std::string& fresh) {
  const auto changes = between(now, fresh);
  EXPECT_FALSE(changes.ok());
  return changes.status().message();
}

std::vector<std::string> names(const std::vector<VariantSource>& variants) {
  std::vector<std::string> out;
  for (const VariantSource& variant : variants) out.push_back(variant.name);
  return out;
}

TEST(ConfigDiff, SaysWhatBecomesOfVariants) {
  const auto changes =
      between("variants: {stays: /s, goes: /g, moves: /m, slower: {path: /x, pin: true}}\n",
              "variants: {stays: {path: /s}, moves: /m2, comes: {path: /n, pin: true}, "
              "slower: {path: /x, rate_limit: {requests_per_second: 2}}}\n");
  ASSERT_TRUE(changes.ok()) << changes.status().message();
  EXPECT_THAT(names(changes->added), ElementsAre("comes"));
  EXPECT_THAT(names(changes->replaced), ElementsAre("moves"));
  EXPECT_THAT(names(changes->limited), ElementsAre("slower"));
  EXPECT_THAT(names(changes->pinned), ElementsAre("comes"));
  EXPECT_THAT(changes->unpinned, ElementsAre("slower"));
  EXPECT_THAT(changes->removed, ElementsAre("goes"));
}

TEST(ConfigDiff, NamesTheKeysThatDiffer) {
  const auto changes =
      between("log: info\nserver: {drain_seconds: 3, api_keys: [a, b]}\n",
              "log: {level: debug, format: json}\nserver: {drain_seconds: 3, api_keys: [a]}\n"
              "engine: {variant_weights: {x: 2}}\nvariant_cache: {memory: 1GiB}\n");
  ASSERT_TRUE(changes.ok()) << changes.status().message();
  EXPECT_THAT(changes->keys,
              UnorderedElementsAre("log", "log.level", "log.format", "server.api_keys",
                                   "engine.variant_weights.x", "variant_cache.memory"));
  EXPECT_THAT(between("log: info\n", "log: info\n")->keys, IsEmpty());
}

// Every other key is refused by its name, those of later versions of this program too.
TEST(ConfigDiff, RefusesWhatCannotChange) {
  EXPECT_THAT(refused("", "engine: {max_running: 3}\n"), HasSubstr("'engine.max_running'"));
  EXPECT_THAT(refused("server: {listen: '127.0.0.1:1'}\n", ""), HasSubstr("'server.listen'"));
  EXPECT_THAT(refused("", "tracing: {endpoint: 'http://x/v1/traces'}\n"),
              HasSubstr("'tracing.endpoint' cannot change while the server runs"));
  EXPECT_THAT(refused("cpu: {threads: 1}\n", "cpu: {threads: 2}\nlog: debug\n"),
              HasSubstr("'cpu.threads'"));
  EXPECT_THAT(refused("", "variant_watch: {settle_seconds: 2}\n"), HasSubstr("variant_watch"));
  EXPECT_THAT(refused("variant_cache: {memory: 1GiB}\n", "variant_cache: {memory: auto}\n"),
              HasSubstr("'variant_cache.memory'"));
}

TEST(ConfigDiff, ADigestTellsConfigsApart) {
  EXPECT_EQ(config_digest(config("log: info\n")), config_digest(config("log: info # x\n")));
  EXPECT_NE(config_digest(config("log: info\n")), config_digest(config("log: debug\n")));
}

}  // namespace
}  // namespace deltad
