// What a pool decides, with a scorer that the test scripts: storing, shrinking, merging, refusing.
#include "merge/adapter_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "delta/loader.h"
#include "pool_world.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::PoolWorld;
using ::testing::SizeIs;
using testing::SmallAdapter;

int64_t size_of(int64_t rank) { return PoolWorld(1).bytes_of({.seed = 1, .rank = rank}); }

std::vector<std::string> names(const PoolView& view) {
  std::vector<std::string> out;
  for (const PoolAdapter& adapter : view.adapters) out.push_back(adapter.name);
  return out;
}

TEST(AdapterPool, StoresAsItIsWhileThereIsRoom) {
  PoolWorld w(3 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  ASSERT_THAT(w.publisher.views, SizeIs(1));  // the empty pool
  w.scorer.script = [](const std::string& name, const std::string&) {
    return name == "a" ? 0.5 : 1.0;
  };
  ASSERT_TRUE(w.add("a", {1, 4}).ok()) << w.report.operation;
  ASSERT_TRUE(w.add("b", {2, 4}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store b"));
  EXPECT_TRUE(w.report.accepted);
  const PoolView view = w.pool->view();
  EXPECT_THAT(names(view), ElementsAre("a", "b"));
  ASSERT_THAT(view.members, SizeIs(2));
  EXPECT_EQ(view.bytes, view.members[0].bytes + view.members[1].bytes);
  EXPECT_EQ(view.adapter("a")->single_score, 0.5);
  EXPECT_EQ(view.adapter("a")->score, 0.5);
  EXPECT_EQ(view.adapter("a")->questions, 1);
  EXPECT_EQ(w.publisher.views.back().bytes, view.bytes);
  EXPECT_EQ(static_cast<int64_t>(fs::file_size(view.members[0].path)), view.members[0].bytes);
  // What is served is the very adapter.
  const PoolMember* member = view.member(view.adapter("b")->member);
  auto stored = LoraAdapter::open(member->path, w.table);
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  const auto factors = read_factors(*stored);
  ASSERT_TRUE(factors.ok());
  const AdapterFactorSet original = testing::small_factors(w.table, w.adapters["b"]);
  for (const auto& [weight, f] : original) {
    EXPECT_EQ(factors->at(weight).a, f.a);
    EXPECT_EQ(factors->at(weight).b, f.b);
    EXPECT_EQ(factors->at(weight).scale, f.scale);
  }
}

TEST(AdapterPool, ShrinksBeforeItMerges) {
  PoolWorld w(5 * size_of(4) / 2);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t seed = 1; seed <= 3; ++seed)
    ASSERT_TRUE(w.add(std::string(1, static_cast<char>('a' + seed)), {seed, 4}).ok());
  for (const PoolTrial& trial : w.report.trials)
    EXPECT_THAT(std::string(pool_step_name(trial.step)), ::testing::AnyOf("store", "8 bits"));
  const PoolView view = w.pool->view();
  EXPECT_THAT(view.members, SizeIs(3));
  EXPECT_LE(view.bytes, view.budget);
  EXPECT_EQ(view.bytes, w.report.bytes_after);
}

TEST(AdapterPool, LeavesAloneWhatTheGateForbids) {
  PoolWorld w(2 * size_of(4));
  w.options.keep_share = 0.8;
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  ASSERT_TRUE(w.add("b", {2, 4}).ok());
  const std::string whole = w.pool->view().adapter("a")->member;
  // "a" bears nothing, the others half of it.
  w.scorer.script = [&](const std::string& name, const std::string& path) {
    return name == "a" && path.find(whole) == std::string::npos ? 0.79 : 1.0;
  };
  ASSERT_TRUE(w.add("c", {3, 4}).ok());
  EXPECT_THAT(w.steps(), ::testing::Contains("8 bits a not kept"));
  EXPECT_THAT(w.report.trials, ::testing::Contains(::testing::Field(
                                   &PoolTrial::reason, HasSubstr("a would keep 79.0 %"))));
  EXPECT_EQ(w.pool->view().adapter("a")->member, whole);
  EXPECT_LE(w.pool->view().bytes, w.pool->view().budget);
  EXPECT_LT(w.pool->view().member(w.pool->view().adapter("b")->member)->bits, 16);
}

TEST(AdapterPool, MergesTheMostAlikeWhenNothingElseIsLeft) {
  PoolWorld w(2 * size_of(4));
  w.options.policy = PoolPolicy::kKmerge;
  w.options.merge_by = PoolMergeBy::kAverage;
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  ASSERT_TRUE(w.add("b", {2, 4}).ok());
  const std::string old = w.pool->view().member(w.pool->view().adapter("b")->member)->path;
  ASSERT_TRUE(w.add("c", {.seed = 3, .rank = 4, .like = 2, .alike = 70}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store c", "average b+c"));
  EXPECT_GT(w.report.trials[1].similarity, 0.2);
  const PoolView view = w.pool->view();
  ASSERT_THAT(view.members, SizeIs(2));
  EXPECT_EQ(view.adapter("b")->member, view.adapter("c")->member);
  EXPECT_NE(view.adapter("a")->member, view.adapter("c")->member);
  EXPECT_THAT(view.member(view.adapter("b")->member)->adapters, ElementsAre("b", "c"));
  EXPECT_FALSE(fs::exists(old));
  // Removing one of its names leaves the member to the other.
  ASSERT_TRUE(w.pool->remove("b").ok());
  EXPECT_EQ(w.pool->view().adapter("c")->member, view.adapter("c")->member);
  ASSERT_TRUE(w.pool->remove("c").ok());
  EXPECT_THAT(names(w.pool->view()), ElementsAre("a"));
  EXPECT_THAT(w.pool->view().members, SizeIs(1));
  EXPECT_EQ(w.pool->remove("c").code(), Code::kNotFound);
}

TEST(AdapterPool, TriesTheNextMostAlikeThenRefusesWithTheFigures) {
  PoolWorld w(2 * size_of(4));
  w.options.policy = PoolPolicy::kKmerge;
  w.options.merge_by = PoolMergeBy::kAverage;
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  ASSERT_TRUE(w.add("b", {2, 4}).ok());
  const PoolView before = w.pool->view();
  const size_t published = w.publisher.views.size();
  // A merge costs everyone, but c alone is fine.
  w.scorer.script = [&](const std::string& name, const std::string&) {
    return name == "c" ? 1.0 : 0.25;
  };
  const Status refused = w.add("c", {.seed = 3, .rank = 4, .like = 2, .alike = 70});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("average of b, c: b would keep 25.0 %"));
  EXPECT_THAT(refused.message(), HasSubstr("average of a, c: a would keep 25.0 %"));
  EXPECT_THAT(w.steps(), ElementsAre("store c", "average b+c not kept", "average a+c not kept"));
  EXPECT_FALSE(w.report.accepted);
  EXPECT_THAT(pool_report_text(w.report), HasSubstr("refused"));
  EXPECT_THAT(w.publisher.views, SizeIs(published));
  EXPECT_EQ(names(w.pool->view()), names(before));
  EXPECT_TRUE(fs::is_empty(w.folder->path() + "/candidates"));

  w.scorer.script = [&](const std::string& name, const std::string&) {
    return name == "b" ? 0.25 : 1.0;
  };
  ASSERT_TRUE(w.add("d", {.seed = 4, .rank = 4, .like = 2, .alike = 70}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store d", "average b+d not kept", "average a+d"));
}

TEST(AdapterPool, KeepsTheWayOfMergingThatCostsLess) {
  PoolWorld w(size_of(4));
  w.options.policy = PoolPolicy::kKmerge;
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  int merged = 0;
  w.scorer.script = [&](const std::string& name, const std::string&) {
    if (name != "a") return 1.0;
    return ++merged == 1 ? 0.92 : 0.97;  // the average, OPCM
  };
  ASSERT_TRUE(w.add("b", {2, 4}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store b", "average a+b not kept", "opcm a+b"));
  EXPECT_THAT(w.report.trials[1].reason, HasSubstr("another way"));
}

TEST(AdapterPool, StoresApartOnlyWhatIsUnlikeAllOthers) {
  PoolWorld w(10 * size_of(4));
  w.options.store_below = 0.3;
  w.options.merge_by = PoolMergeBy::kAverage;
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  ASSERT_TRUE(w.add("b", {2, 4}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store b"));
  ASSERT_TRUE(w.add("c", {.seed = 3, .rank = 4, .like = 2, .alike = 90}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store c", "average b+c"));
  // If that fails the gate there is room all the same.
  w.scorer.script = [](const std::string& name, const std::string&) {
    return name == "a" ? 0.1 : 1.0;
  };
  ASSERT_TRUE(w.add("d", {.seed = 4, .rank = 4, .like = 1, .alike = 90}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store d", "average a+d not kept"));
  EXPECT_THAT(w.pool->view().members, SizeIs(3));
}

TEST(AdapterPool, EqualAdaptersShareOneMember) {
  PoolWorld w(size_of(4));
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  ASSERT_TRUE(w.add("b", {1, 4}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("share a+b"));
  EXPECT_THAT(w.pool->view().members, SizeIs(1));
  ASSERT_TRUE(w.pool->remove("a").ok());
  EXPECT_THAT(names(w.pool->view()), ElementsAre("b"));
}

TEST(AdapterPool, WhatShrinksToAMemberThatIsThereSharesIt) {
  PoolWorld w(size_of(4));
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  ASSERT_TRUE(w.pool->set_budget(size_of(4) * 3 / 4, nullptr, &w.report).ok());
  EXPECT_THAT(w.steps(), ElementsAre("8 bits a"));
  ASSERT_TRUE(w.add("b", {1, 4}).ok());
  EXPECT_THAT(w.steps(), ElementsAre("store b", "8 bits a+b"));
  EXPECT_THAT(w.pool->view().members, SizeIs(1));
  EXPECT_EQ(w.pool->view().adapter("a")->member, w.pool->view().adapter("b")->member);
  ASSERT_TRUE(w.open().ok());
}

TEST(AdapterPool, ASmallerBudgetIsKeptOrRefused) {
  PoolWorld w(10 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  for (uint64_t seed = 1; seed <= 3; ++seed)
    ASSERT_TRUE(w.add(std::string(1, static_cast<char>('a' + seed)), {seed, 4}).ok());
  const PoolView before = w.pool->view();
  ASSERT_TRUE(w.pool->set_budget(before.bytes * 2 / 3, nullptr, &w.report).ok());
  EXPECT_LE(w.pool->view().bytes, before.bytes * 2 / 3);
  EXPECT_EQ(w.pool->view().budget, before.bytes * 2 / 3);
  // Merging down to one member takes several merges.
  const int64_t least = size_of(4) / 2;
  ASSERT_TRUE(w.pool->set_budget(least, nullptr, &w.report).ok());
  EXPECT_LE(w.pool->view().bytes, least);
  EXPECT_THAT(w.pool->view().members, SizeIs(1));
  const PoolView small = w.pool->view();
  EXPECT_EQ(w.pool->set_budget(100, nullptr, &w.report).code(), Code::kResourceExhausted);
  EXPECT_EQ(w.pool->view().budget, small.budget);
  EXPECT_EQ(w.pool->view().bytes, small.bytes);
  EXPECT_EQ(w.pool->set_budget(0, nullptr, &w.report).code(), Code::kInvalidArgument);
  // It survives a restart, but not another configuration.
  ASSERT_TRUE(w.open().ok());
  EXPECT_EQ(w.pool->view().budget, least);
  w.options.budget = 20 * size_of(4);
  ASSERT_TRUE(w.open().ok());
  EXPECT_EQ(w.pool->view().budget, 20 * size_of(4));
}

TEST(AdapterPool, IsTheSameAfterARestartAndAsksNothingTwice) {
  PoolWorld w(2 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  for (uint64_t seed = 1; seed <= 3; ++seed)
    ASSERT_TRUE(w.add(std::string(1, static_cast<char>('a' + seed)), {seed, 4}).ok());
  const PoolView before = w.pool->view();
  const size_t asked = w.scorer.asked.size();
  ASSERT_TRUE(w.open().ok());
  const PoolView after = w.pool->view();
  EXPECT_EQ(w.scorer.asked.size(), asked);
  ASSERT_THAT(after.members, SizeIs(before.members.size()));
  for (size_t i = 0; i < after.members.size(); ++i) {
    EXPECT_EQ(after.members[i].digest, before.members[i].digest);
    EXPECT_EQ(after.members[i].adapters, before.members[i].adapters);
  }
  EXPECT_EQ(names(after), names(before));
  EXPECT_EQ(w.publisher.views.back().bytes, before.bytes);
  // A base with another digest, a member that is not what it was.
  auto other = AdapterPool::open(w.options, w.table, "other", *w.folder, w.scorer, w.publisher);
  EXPECT_THAT(other.status().message(), HasSubstr("made for the base with digest base"));
  fs::resize_file(after.members[0].path, static_cast<uintmax_t>(after.members[0].bytes - 1));
  EXPECT_THAT(w.open().message(), HasSubstr(after.members[0].digest));
}

TEST(AdapterPool, AStateThatIsDamagedIsRefusedAndNothingIsTouched) {
  PoolWorld w(2 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  const std::string at = w.folder->path() + "/pool.json", member = w.pool->view().members[0].path;
  const std::string good = testing::slurp(at);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t place = text.find(from);
    EXPECT_NE(place, std::string::npos) << from;
    return text.replace(place, from.size(), to);
  };
  for (const std::string& bad :
       {std::string(), std::string("{}"), good.substr(0, good.size() / 2),
        with("\"version\": 1", "\"version\": 2"), with("\"name\": \"a\"", "\"name\": \"b\""),
        with("\"digest\": \"", "\"digest\": \"../../"),
        with("\"score\": 1.0", "\"score\": \"x\"")}) {
    std::ofstream(at) << bad;
    const Status refused = w.open();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << bad;
    EXPECT_THAT(refused.message(), HasSubstr("pool.json"));
    EXPECT_TRUE(fs::exists(member));
  }
}

TEST(AdapterPool, WhatIsBadIsRefusedEarlyAndChangesNothing) {
  PoolWorld w(10 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  ASSERT_TRUE(w.add("a", {1, 4}).ok());
  const std::string good = w.adapter("b", {2, 4}), questions = w.questions("b");
  const size_t asked = w.scorer.asked.size(), published = w.publisher.views.size();
  const auto refusal = [&](const std::string& name, const std::string& adapter,
                           const std::string& set) {
    const Status status = w.pool->add(name, adapter, set, nullptr, &w.report);
    EXPECT_FALSE(status.ok()) << name;
    return status.message();
  };
  EXPECT_THAT(refusal("", good, questions), HasSubstr("name is empty"));
  EXPECT_THAT(refusal("b c", good, questions), HasSubstr("space"));
  EXPECT_THAT(refusal("b,c", good, questions), HasSubstr("comma"));
  EXPECT_THAT(refusal(std::string("b\0c", 3), good, questions), HasSubstr("control"));
  EXPECT_THAT(refusal("a", good, questions), HasSubstr("already"));
  EXPECT_THAT(refusal("b", w.home.path() + "/none", questions), HasSubstr("none"));
  EXPECT_THAT(refusal("b", good, w.home.path() + "/none.jsonl"), HasSubstr("none.jsonl"));
  EXPECT_THAT(refusal("b", good, w.home.write("empty.jsonl", "\n")), HasSubstr("no questions"));
  EXPECT_THAT(refusal("b", good, w.home.write("bad.jsonl", "{\"prompt\": 1}")),
              HasSubstr("line 1"));

  AdapterFactorSet factors = testing::small_factors(w.table, {2, 4});
  const auto written = [&](const AdapterFactorSet& set, const std::string& base) {
    const std::string path = w.home.path() + "/bad.lora.safetensors";
    EXPECT_TRUE(write_packed_adapter(pack_adapter(16, base, set), path).ok());
    return path;
  };
  EXPECT_THAT(refusal("b", written(factors, "another base"), questions), HasSubstr("another base"));
  AdapterFactorSet changed = factors;
  changed.begin()->second.a[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal("b", written(changed, ""), questions), HasSubstr("a value is nan"));
  changed = factors;
  changed.begin()->second.scale = std::numeric_limits<double>::infinity();
  EXPECT_THAT(refusal("b", written(changed, ""), questions), HasSubstr("scale is inf"));
  changed = factors;
  changed["model.layers.9.mlp.up_proj.weight"] = changed.begin()->second;
  EXPECT_THAT(refusal("b", written(changed, ""), questions), HasSubstr("no module of the base"));
  changed = factors;  // shapes of another base
  changed["model.layers.0.mlp.up_proj.weight"] = factors["model.layers.0.mlp.down_proj.weight"];
  changed["model.layers.0.mlp.up_proj.weight"].inputs += 1;
  changed["model.layers.0.mlp.up_proj.weight"].a.resize(164);
  EXPECT_THAT(refusal("b", written(changed, ""), questions), HasSubstr("expected U8 [rank, "));
  changed = factors;
  AdapterFactors& huge = changed.begin()->second;
  huge.rank = 1025;
  huge.a.resize(static_cast<size_t>(huge.rank * huge.inputs));
  huge.b.resize(static_cast<size_t>(huge.rank * huge.outputs));
  EXPECT_THAT(refusal("b", written(changed, ""), questions), HasSubstr("rank is 1025"));
  // A PEFT folder whose config points elsewhere: only its numbers matter, and it has no tensors.
  fs::create_directory(w.home.path() + "/peft");
  w.home.write("peft/adapter_config.json",
               R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": "all-linear",)"
               R"( "base_model_name_or_path": "../../../../etc/passwd"})");
  EXPECT_THAT(refusal("b", w.home.path() + "/peft", questions),
              HasSubstr("peft/adapter_model.safetensors"));

  EXPECT_EQ(w.scorer.asked.size(), asked);
  EXPECT_THAT(w.publisher.views, SizeIs(published));
  EXPECT_THAT(names(w.pool->view()), ElementsAre("a"));
  ASSERT_TRUE(w.open().ok());
  EXPECT_THAT(names(w.pool->view()), ElementsAre("a"));
}

TEST(AdapterPool, ANameIsNoPath) {
  PoolWorld w(10 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  const std::string adapter = w.adapter("a", {1, 4}), questions = w.questions("a");
  ASSERT_TRUE(w.pool->add("../../outside", adapter, questions, nullptr, &w.report).ok());
  const std::string member = fs::canonical(w.pool->view().members[0].path).string();
  EXPECT_EQ(member.rfind(fs::canonical(w.folder->path()).string() + "/members/", 0), 0u) << member;
  EXPECT_FALSE(fs::exists(w.folder->path() + "/../../outside"));
}

TEST(AdapterPool, AnErrorOfTheScorerOrThePublisherIsTold) {
  PoolWorld w(10 * size_of(4));
  ASSERT_TRUE(w.open().ok());
  w.scorer.script = [](const std::string&, const std::string&) -> Result<double> {
    return cancelled("the pool is being closed");
  };
  EXPECT_EQ(w.add("a", {1, 4}).code(), Code::kCancelled);
  EXPECT_THAT(w.pool->view().members, IsEmpty());
  w.scorer.script = [](const std::string&, const std::string&) { return 1.0; };
  w.publisher.result = internal_error("no memory");
  EXPECT_THAT(w.add("a", {1, 4}).message(), HasSubstr("not served so: no memory"));
  EXPECT_THAT(names(w.pool->view()), ElementsAre("a"));  // it has happened, and is durable
  w.publisher.result = Status();
  ASSERT_TRUE(w.open().ok());
  EXPECT_THAT(names(w.publisher.views.back()), ElementsAre("a"));
}

}  // namespace
}  // namespace deltad
