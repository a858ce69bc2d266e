// The pool against an independent implementation in fp64 (tests/golden/make/pool.py): what it tries
// in which order, what it keeps, the similarities, bytes and scores it sees, and the merged
// factors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "merge/pool_forms.h"
#include "merge/pool_state.h"
#include "pool_world.h"

namespace deltad {
namespace {

using Json = nlohmann::json;
using testing::PoolWorld;
using testing::SmallAdapter;

Json reference() { return Json::parse(testing::slurp(DELTAD_GOLDEN "/merge/pool.json")); }

SmallAdapter adapter_of(const Json& json) {
  SmallAdapter out;
  out.seed = json.at("seed");
  out.rank = json.at("rank");
  out.like = json.value("like", 0);
  out.alike = json.value("alike", 0);
  out.falling = json.value("falling", 1.0);
  return out;
}

double dot(const LowRankSet& x, const LowRankSet& y) {
  double sum = 0;
  for (const auto& [weight, factors] : x) sum += inner(factors, y.at(weight));
  return sum;
}

LowRankSet read_set(const WeightTable& table, const std::string& path) {
  auto adapter = LoraAdapter::open(path, table);
  EXPECT_TRUE(adapter.ok()) << adapter.status().message();
  auto factors = read_factors(*adapter);
  EXPECT_TRUE(factors.ok());
  return low_rank_of(*factors);
}

void expect_trials(const PoolReport& report, const Json& expected, const std::string& what) {
  ASSERT_EQ(report.trials.size(), expected.size()) << what << pool_report_text(report);
  for (size_t i = 0; i < expected.size(); ++i) {
    const PoolTrial& trial = report.trials[i];
    const Json& other = expected[i];
    const std::string where = what + ", trial " + std::to_string(i);
    EXPECT_EQ(pool_step_name(trial.step), other["step"].get<std::string>()) << where;
    EXPECT_EQ(trial.adapters, other["adapters"].get<std::vector<std::string>>()) << where;
    EXPECT_EQ(trial.accepted, other["accepted"].get<bool>()) << where;
    EXPECT_EQ(trial.bits, other["bits"].get<int>()) << where;
    EXPECT_EQ(trial.rank, other["rank"].get<int64_t>()) << where;
    EXPECT_EQ(trial.bytes_after, other["bytes"].get<int64_t>()) << where;
    EXPECT_NEAR(trial.similarity, other.value("similarity", 0.0), 1e-5) << where;
    if (trial.step == PoolStep::kRank) {
      EXPECT_NEAR(trial.kept_energy, other["kept_energy"].get<double>(), 1e-5) << where;
    }
    ASSERT_EQ(trial.scores.size(), other["scores"].size()) << where;
    for (size_t a = 0; a < trial.scores.size(); ++a)
      EXPECT_NEAR(trial.scores[a].score, other["scores"][a].get<double>(), 1e-4) << where;
  }
}

TEST(PoolReference, DecisionsAndFactorsAreThoseOfTheReference) {
  const Json file = reference();
  for (size_t at = 0; at < file["pools"].size(); ++at) {
    const Json& settings = file["pools"][at];
    PoolWorld w(settings["budget"]);
    w.options.policy = *parse_pool_policy(settings["policy"]);
    w.options.merge_by = *parse_pool_merge_by(settings["merge_by"]);
    w.options.keep_share = settings["keep_share"];
    w.options.max_dropped_energy = settings["most_dropped"];
    std::map<std::string, LowRankSet> originals;
    w.scorer.script = [&](const std::string& name, const std::string& path) {
      const LowRankSet candidate = read_set(w.table, path);
      const LowRankSet& own = originals.at(name);
      return std::max(0.0,
                      dot(own, candidate) / std::max(dot(own, own), dot(candidate, candidate)));
    };
    ASSERT_TRUE(w.open().ok());
    for (size_t i = 0; i < file["adapters"].size(); ++i) {
      const std::string name = "a" + std::to_string(i);
      const std::string what = "pool " + std::to_string(at) + ", " + name;
      const SmallAdapter adapter = adapter_of(file["adapters"][i]);
      originals[name] = low_rank_of(testing::small_factors(w.table, adapter));
      const Status added = w.add(name, adapter);
      const Json& expected = settings["adds"][i];
      EXPECT_EQ(added.ok(), expected["accepted"].get<bool>()) << what << added.message();
      expect_trials(w.report, expected["trials"], what);
      EXPECT_EQ(w.pool->view().bytes, expected["bytes"].get<int64_t>()) << what;
    }
    const PoolView view = w.pool->view();
    const auto state = PoolState::parse(testing::slurp(w.folder->path() + "/pool.json"), "state");
    ASSERT_TRUE(state.ok());
    ASSERT_EQ(view.members.size(), settings["members"].size());
    for (const Json& expected : settings["members"]) {
      const PoolMember* member =
          view.member(view.adapter(expected["adapters"][0].get<std::string>())->member);
      EXPECT_EQ(member->adapters, expected["adapters"].get<std::vector<std::string>>());
      EXPECT_EQ(member->bits, expected["bits"].get<int>());
      const StoredMember& stored = state->members.at(member->digest);
      EXPECT_EQ(stored.held, expected["held"].get<int64_t>());
      EXPECT_NEAR(stored.lambda, expected["lambda"].get<double>(), 1e-3);
      const LowRankSet set = read_set(w.table, member->path);
      const double norm = expected["norm"];
      EXPECT_NEAR(norm_of(set), norm, 1e-3 * norm);
      size_t i = 0;
      for (const auto& [name, own] : originals)
        EXPECT_NEAR(dot(set, own), expected["products"][i++].get<double>(),
                    2e-3 * norm * norm_of(own))
            << at << name;
    }
  }
}

TEST(PoolReference, QuantisedVectorsAreThoseOfTheReference) {
  const Json file = reference();
  AdapterFactors factors;
  factors.rank = 1;
  factors.inputs = factors.outputs = 33;
  for (int i = 0; i < 33; ++i) factors.a.push_back(static_cast<float>((i * 37) % 101 - 50) / 32);
  factors.b = factors.a;
  for (const int bits : {8, 4}) {
    const std::vector<uint8_t> raw = pack_factors(bits, factors);
    AdapterFactors found = factors;
    ASSERT_TRUE(unpack_factors(bits, raw.data(), &found).ok());
    const Json& expected = file["vectors"][std::to_string(bits)];
    for (size_t i = 0; i < 33; ++i) {
      EXPECT_NEAR(found.a[i], expected[i].get<float>(), 1e-6f) << bits;
      EXPECT_EQ(found.b[i], found.a[i]);
    }
  }
}

}  // namespace
}  // namespace deltad
