// Random sequences of events against the router: requests, clients that leave, loads that are slow,
// fail or are cancelled, files that vanish, replacements, removals, pins, changes of the budget,
// and what the adapter pool publishes: each answer is of one member that stood for its name at a
// time between its arrival and its start. After every event: no budget is passed, accounts agree
// with what is really in memory, nothing in use is evicted and no two loads of a digest run
// (RouterWorld checks these as they happen), every request ends exactly once, and nobody waits for
// nothing. DELTAD_SEED=n replays a failing run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <random>

#include "tests/support/router_world.h"

namespace deltad {
namespace {

using testing::RouterWorld;

constexpr int kEvents = 100'000;
constexpr int kNames = 14, kPooled = 6;

class RandomEvents {
 public:
  RandomEvents(uint64_t seed, bool two_tiers)
      : random_(seed), two_tiers_(two_tiers), world_(options()) {
    world_.measure_at_once = false;
    for (int i = 0; i < kNames; ++i) add(i);
  }

  void run(int events) {
    for (int i = 0; i < events && !::testing::Test::HasFailure(); ++i) {
      event();
      check();
    }
    if (!::testing::Test::HasFailure()) wind_up();
  }

  RouterWorld& world() { return world_; }
  // What happened at all: a sequence that never reaches a case tests nothing.
  int finished = 0, left = 0, failed = 0, refused = 0, replaced = 0, late = 0, published = 0;
  int outdated = 0, copies_outdated = 0;

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }

  RouterCoreOptions options() {
    RouterCoreOptions out = RouterWorld::options(100, two_tiers_ ? 70 : 0, below(3) + 1);
    out.cache.half_life_seconds = 20;
    out.cache.age_bound_seconds = 3;
    out.max_waiting = 60;
    out.max_waiting_per_variant = 25;
    return out;
  }
  std::string name(int i) { return "v" + std::to_string(i); }
  // A few are asked for much more often than the others.
  std::string some() {
    if (chance(25)) return pooled(below(kPooled));
    return name(std::min(below(kNames), below(kNames)));
  }
  std::string pooled(int i) { return "p" + std::to_string(i); }
  int64_t size() { return chance(2) ? 150 : 5 + below(36); }
  std::string digest() { return "d" + std::to_string(below(30)); }
  void add(int i) { (void)world_.add(name(i), size(), digest()); }

  template <typename Map>
  typename Map::key_type any(const Map& map) {
    auto it = map.begin();
    std::advance(it, below(static_cast<int>(map.size())));
    return it->first;
  }

  void event() {
    const int kind = below(1000);
    if (kind < 330) {
      ask();
    } else if (kind < 600) {
      if (!world_.engine.empty()) finish(any(world_.engine));
    } else if (kind < 670) {
      if (!open_.empty()) leave();
    } else if (kind < 800) {
      if (!world_.jobs.empty()) end_job(any(world_.jobs));
    } else if (kind < 880) {
      if (!world_.measuring.empty())
        world_.measured(static_cast<size_t>(below(static_cast<int>(world_.measuring.size()))));
    } else if (kind < 920) {
      world_.tick(below(1500) / 1000.0);
    } else {
      administer();
    }
  }

  void ask() {
    const TimePoint deadline =
        chance(20) ? world_.clock.now() + std::chrono::seconds(below(8)) : TimePoint::max();
    world_.engine_refuses = chance(2);
    const size_t number = world_.ask(chance(10) ? "base" : some(), deadline);
    world_.engine_refuses = false;
    if (world_.asked[number].refused) {
      ++refused;
      return;
    }
    open_.insert(number);
    if (const auto at = stands_for_.find(world_.asked[number].name); at != stands_for_.end())
      answered_by_[number] = {at->second};
    note_starts();
  }

  // Who has begun since the last look was given the member that stood for the name then: the last
  // one, or of the last `choices`.
  void note_starts(std::ptrdiff_t choices = 1) {
    for (auto it = answered_by_.begin(); it != answered_by_.end();) {
      const RouterWorld::Asked& asked = world_.asked[it->first];
      if (!asked.in_engine && asked.ends == 0) {
        ++it;
        continue;
      }
      const std::vector<std::string>& stood = it->second;
      const auto first = stood.end() - std::min(choices, std::ssize(stood));
      if (!asked.digest.empty()) {
        EXPECT_NE(std::find(first, stood.end(), asked.digest), stood.end())
            << asked.name << " was answered by " << asked.digest << ", not by " << stood.back();
      }
      it = answered_by_.erase(it);
    }
  }

  // Some names are gone, the others are cut into groups, each of one member, old or new.
  void publish() {
    note_starts();
    std::map<std::string, int64_t> members;
    std::map<std::string, std::string> names;
    for (int i = 0; i < kPooled; ++i) {
      if (chance(10)) continue;
      const std::string member = "m" + std::to_string(below(6));
      names[pooled(i)] = member;
      members.emplace(member, sizes_.emplace(member, size()).first->second);
    }
    ASSERT_TRUE(world_.publish(members, names).ok());
    ++published;
    stands_for_.clear();
    for (const auto& [name, member] : names) stands_for_[name] = "pool/" + member;
    for (auto& [number, digests] : answered_by_) {
      const auto at = stands_for_.find(world_.asked[number].name);
      if (at != stands_for_.end()) digests.push_back(at->second);
    }
    note_starts(2);  // room that a switch makes may let one begin as if just before it
  }

  void finish(size_t number) {
    const RouterWorld::Asked& asked = world_.asked[number];
    world_.finish(number, asked.engine_cancelled ? FinishReason::kCancelled
                          : chance(3)            ? FinishReason::kError
                                                 : FinishReason::kStop);
    ++finished;
  }

  void leave() {
    auto it = open_.begin();
    std::advance(it, below(static_cast<int>(open_.size())));
    world_.leave(*it);
    ++left;
  }

  void end_job(VariantId id) {
    const RouterEffect& job = world_.jobs.at(id);
    if (job.kind == RouterEffect::Kind::kLoad && !job.entry->pooled && chance(5)) {
      ++outdated;
      failed += !world_.load_outdated(id, {size(), digest()});
      return;
    }
    if (job.kind == RouterEffect::Kind::kPromote && chance(10)) {
      const std::string path = job.entry->path;
      // The pool's files may be written again, but never become others.
      if (job.entry->pooled && world_.files.count(path) == 0) return;
      ++copies_outdated;
      world_.copy_outdated(
          id, job.entry->pooled ? world_.files[path] : RouterWorld::File{size(), digest()});
      return;
    }
    Status status;
    if (job.kind != RouterEffect::Kind::kDemote && job.entry->cancel_load && chance(80))
      status = cancelled("nobody waits for it any more");
    else if (chance(8))
      status = unavailable("the disk is broken");
    failed += status.code() == Code::kUnavailable;
    world_.saves = chance(10) ? 1 : 0;
    world_.end_load(id, status);
  }

  void administer() {
    const std::string who = some();
    switch (below(14)) {
      case 12:
      case 13:
        publish();
        return;
      case 0:
      case 1:
      case 2:
        replaced += world_.replace(who, size(), digest()).ok();
        return;
      case 3:
        (void)world_.remove(who);
        return;
      case 4:
      case 5:
        add(below(kNames));
        return;
      case 6:
        (void)world_.core.pin(who);
        break;
      case 7:
      case 8:
        (void)world_.core.unpin(who);
        break;
      case 9:
        (void)world_.core.prefetch(who);
        break;
      case 10:
        (void)world_.core.evict(who);
        break;
      case 11: {
        const Tier tier = two_tiers_ && chance(40) ? Tier::kHost : Tier::kDevice;
        const int64_t bytes = tier == Tier::kHost ? 20 + below(80) : 60 + below(80);
        if (world_.core.set_budget(tier, bytes).ok()) world_.budget[tier == Tier::kHost] = bytes;
        // Half of the files vanish for a moment.
        if (chance(5)) world_.files.clear();
        break;
      }
    }
    world_.run();
  }

  void check() {
    world_.tick();  // as the service thread, when a handle is dropped
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      const int64_t used = world_.used(tier), budget = world_.budget[tier == Tier::kHost];
      int64_t& before = used_[tier == Tier::kHost];
      // A lowered budget may find more in use; that shrinks only.
      EXPECT_LE(used, std::max(budget, before));
      before = used;
      EXPECT_EQ(world_.core.tier(tier).used, used) << (tier == Tier::kHost ? "host" : "device");
    }
    for (auto it = open_.begin(); it != open_.end();) {
      const RouterWorld::Asked& asked = world_.asked[*it];
      EXPECT_LE(asked.ends, 1);
      late += asked.status.code() == Code::kDeadlineExceeded;
      if (asked.ends > 0) {
        ++closed_;
        it = open_.erase(it);
      } else {
        ++it;
      }
    }
    EXPECT_EQ(world_.ends, closed_) << "a request ended twice";
    EXPECT_EQ(world_.core.requests(), open_.size());
    EXPECT_EQ(world_.core.waiting(), open_.size() - world_.engine.size());
    int64_t in_flight = 0, waiting = 0;
    note_starts();
    for (const VariantInfo& info : world_.core.variants()) {
      if (!info.member.empty()) continue;  // shows its member's
      in_flight += info.in_flight;
      waiting += info.waiting;
    }
    EXPECT_LE(in_flight, static_cast<int64_t>(world_.engine.size()));
    EXPECT_LE(waiting, static_cast<int64_t>(world_.core.waiting()));
    check_figures();
    if (world_.engine.empty() && world_.jobs.empty() && world_.measuring.empty()) {
      EXPECT_EQ(world_.core.waiting(), 0u) << "somebody waits for nothing" << state();
    }
  }

  // What /metrics would show is what is so.
  void check_figures() {
    const RouterStats stats = world_.core.stats();
    const auto waiting = static_cast<int64_t>(world_.core.waiting());
    EXPECT_EQ(stats.waiting.total(), waiting);
    EXPECT_EQ(stats.parked_seconds.total() + static_cast<uint64_t>(waiting), stats.cache.misses);
    EXPECT_EQ(stats.load_seconds.total(), stats.cache.loads);
    EXPECT_LE(stats.promotion_seconds.total(), stats.cache.promotions);
    int64_t loading[2] = {0, 0};
    for (const auto& [id, job] : world_.jobs) loading[job.tier == Tier::kHost] += job.bytes;
    EXPECT_EQ(stats.device.loading, loading[0]);
    EXPECT_EQ(stats.host.loading, loading[1]);
    VariantCounts sum = stats.others.counts;
    for (const VariantRow& row : stats.rows) sum += row.counts;
    EXPECT_EQ(sum.misses, stats.cache.misses);
    EXPECT_LE(sum.loads, stats.cache.loads);
    EXPECT_LE(stats.rows.size(), world_.core.variants().size());
  }

  std::string state() {
    std::string out;
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      const CacheTierInfo info = world_.core.tier(tier);
      out += "; " + std::to_string(info.used) + " of " + std::to_string(info.budget);
    }
    for (const VariantInfo& info : world_.core.variants())
      out += "\n" + info.name + ": " + variant_state_name(info.state) + ", " +
             std::to_string(info.bytes) + " bytes, " + std::to_string(info.waiting) + " wait, " +
             std::to_string(info.in_flight) + " in flight" + (info.pinned ? ", pinned" : "");
    return out;
  }

  // All requests come to their end, then nothing is left in memory.
  void wind_up() {
    for (int i = 0; i < 10'000 && world_.core.requests() > 0; ++i) {
      if (!world_.engine.empty()) finish(any(world_.engine));
      if (!world_.jobs.empty()) world_.end_load(any(world_.jobs), Status());
      if (!world_.measuring.empty()) world_.measured(0);
      world_.tick(0.1);
      check();
    }
    EXPECT_EQ(world_.core.requests(), 0u);
    for (int i = 0; i < kNames; ++i) (void)world_.remove(name(i));
    ASSERT_TRUE(world_.publish({}, {}).ok());
    while (!world_.jobs.empty()) world_.end_load(any(world_.jobs), Status());
    while (!world_.measuring.empty()) world_.measured(0);
    EXPECT_EQ(world_.used(Tier::kDevice), 0);
    EXPECT_EQ(world_.used(Tier::kHost), 0);
    EXPECT_EQ(world_.core.tier(Tier::kDevice).used, 0);
    EXPECT_EQ(world_.core.tier(Tier::kHost).used, 0);
    EXPECT_EQ(world_.releases->take().size(), 0u);
  }

  std::mt19937_64 random_;
  const bool two_tiers_;
  RouterWorld world_;
  std::set<size_t> open_;
  int64_t closed_ = 0;
  int64_t used_[2] = {0, 0};
  std::map<std::string, std::string> stands_for_;  // of the pool: name → digest of its member
  std::map<std::string, int64_t> sizes_;           // of members
  std::map<size_t, std::vector<std::string>> answered_by_;  // of requests that wait
};

void play(uint64_t seed, bool two_tiers) {
  // Before anything can go wrong: a CHECK or a sanitizer ends the process.
  std::printf("DELTAD_SEED=%llu replays this\n", static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  RandomEvents events(seed, two_tiers);
  events.run(kEvents);
  if (::testing::Test::HasFailure()) return;
  const CacheStats& stats = events.world().core.cache_stats();
  EXPECT_GT(events.finished, kEvents / 20);
  EXPECT_GT(events.left, 100);
  EXPECT_GT(events.failed, 100);
  EXPECT_GT(events.outdated, 100);
  EXPECT_GT(events.refused, 100);
  EXPECT_GT(events.replaced, 100);
  EXPECT_GT(events.late, 10);
  EXPECT_GT(events.published, 100);
  EXPECT_GT(stats.hits, 1000u);
  EXPECT_GT(stats.evicted(Tier::kDevice, EvictionReason::kRoom), 1000u);
  EXPECT_GT(stats.evicted(Tier::kDevice, EvictionReason::kAge), 10u);
  EXPECT_GT(stats.loads_cancelled, 10u);
  if (two_tiers) {
    EXPECT_GT(stats.promotions, 100u);
    EXPECT_GT(stats.demotions, 100u);
    EXPECT_GT(events.copies_outdated, 50);
  }
}

class RandomEventsTest : public ::testing::TestWithParam<bool> {};

TEST_P(RandomEventsTest, TheInvariantsHoldAfterEveryEvent) {
  if (const char* seed = std::getenv("DELTAD_SEED")) {
    play(std::strtoull(seed, nullptr, 10), GetParam());
    return;
  }
  for (uint64_t seed = 1; seed <= 3 && !HasFailure(); ++seed) play(seed, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Tiers, RandomEventsTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Two" : "One"; });

}  // namespace
}  // namespace deltad
