// CacheWorld: a DeltaCache with what it commands: a disk whose loads end when the test says so, and
// two memories that count their bytes on their own. Every action is checked as it is taken: no
// memory passes its budget, nothing that is in use goes, one load at most runs for a digest.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "router/delta_cache.h"
#include "tests/support/fake_clock.h"

namespace deltad::testing {

class CacheWorld {
 public:
  struct Item {
    std::string name;
    int64_t bytes = 0;
    std::string digest;
    int64_t device = 0, host = 0;  // bytes that it takes there
    bool loading = false, cancelled = false, copying = false;
    Tier target = Tier::kDevice;
    int64_t waiting = 0, in_flight = 0, failed = 0;
    Status error;
  };

  explicit CacheWorld(const CacheOptions& options, std::unique_ptr<EvictionPolicy> policy = nullptr)
      : cache(options, clock, std::move(policy)) {}

  VariantId add(const std::string& name, int64_t bytes, const std::string& digest = "") {
    const VariantId id = cache.add(name);
    Item& item = items[id];
    item.name = name;
    item.bytes = bytes;
    item.digest = digest.empty() ? name : digest;
    return id;
  }

  // Requests. want: true if in flight at once.
  bool want(VariantId id) {
    const Result<bool> admitted = cache.want(id);
    if (admitted.ok()) ++(*admitted ? items[id].in_flight : items[id].waiting);
    last = admitted.status();
    run();
    return admitted.ok() && *admitted;
  }
  void leave(VariantId id) {
    --items[id].waiting;
    cache.leave(id);
    run();
  }
  void release(VariantId id) {
    --items[id].in_flight;
    cache.release(id);
    run();
  }
  // The load that runs ends.
  void loaded(VariantId id) { end_load(id, Status(), items[id].bytes); }
  void end_load(VariantId id, const Status& status, int64_t bytes) {
    Item& item = items[id];
    ASSERT_TRUE(item.loading) << item.name;
    item.loading = item.cancelled = false;
    int64_t& place = item.target == Tier::kDevice ? item.device : item.host;
    place = status.ok() ? bytes : 0;
    if (status.ok()) item.bytes = bytes;
    cache.load_ended(id, status, bytes);
    run();
  }
  // The load finds another file, of so many bytes.
  void outdated(VariantId id, int64_t bytes) {
    Item& item = items[id];
    ASSERT_TRUE(item.loading) << item.name;
    item.loading = item.cancelled = false;
    (item.target == Tier::kDevice ? item.device : item.host) = 0;
    item.bytes = bytes;
    cache.load_outdated(id);
    run();
  }
  // The promotion finds that the disk has another version, of so many bytes.
  void copy_outdated(VariantId id, int64_t bytes) {
    Item& item = items[id];
    ASSERT_TRUE(item.loading) << item.name;
    item.loading = item.cancelled = false;
    item.device = 0;
    item.bytes = bytes;
    cache.copy_outdated(id, true);
    run();
  }
  void demoted(VariantId id, bool ok = true) {
    Item& item = items[id];
    ASSERT_TRUE(item.copying) << item.name;
    item.copying = false;
    if (!ok) item.host = 0;
    cache.demoted(id, ok);
    run();
  }
  void tick(double seconds) {
    clock.advance(seconds);
    cache.tick();
    run();
  }
  void set_budget(Tier tier, int64_t bytes) {
    last = cache.set_budget(tier, bytes);
    run();
  }

  // Carries out what the cache asks for; loads and copies wait for loaded() and demoted().
  void run() {
    for (auto actions = cache.take_actions(); !actions.empty(); actions = cache.take_actions())
      for (const CacheAction& action : actions) perform(action);
  }

  int64_t used(Tier tier) const {
    int64_t sum = 0;
    for (const auto& [id, item] : items) sum += tier == Tier::kDevice ? item.device : item.host;
    return sum;
  }
  int loading() const {
    int n = 0;
    for (const auto& [id, item] : items) n += item.loading;
    return n;
  }
  Residency where(VariantId id) const { return cache.info(id).residency; }
  bool on_device(VariantId id) const { return where(id) == Residency::kDevice; }

  FakeClock clock;
  DeltaCache cache;
  std::map<VariantId, Item> items;
  std::vector<std::string> log;  // "load a", "free a", …
  Status last;                   // of the last want or set_budget

 private:
  void perform(const CacheAction& action) {
    using Kind = CacheAction::Kind;
    Item& item = items.at(action.id);
    switch (action.kind) {
      case Kind::kMeasure:
        cache.measured(action.id, item.bytes, item.digest);
        break;
      case Kind::kLoad:
      case Kind::kPromote:
        EXPECT_FALSE(item.loading) << item.name << ": a second load";
        for (const auto& [id, other] : items)
          if (action.kind == Kind::kLoad && other.loading && id != action.id) {
            EXPECT_NE(other.digest, item.digest) << "two loads of one digest";
          }
        if (action.kind == Kind::kPromote) {
          EXPECT_EQ(item.host, action.bytes) << item.name;
        }
        item.loading = true;
        item.target = action.tier;
        take(item, action.tier, action.bytes);
        log.push_back((action.kind == Kind::kLoad ? "load " : "promote ") + item.name);
        break;
      case Kind::kDemote:
        EXPECT_EQ(item.host, 0) << item.name << " has a copy on the host already";
        item.copying = true;
        take(item, Tier::kHost, action.bytes);
        log.push_back("demote " + item.name);
        break;
      case Kind::kFree: {
        int64_t& place = action.tier == Tier::kDevice ? item.device : item.host;
        EXPECT_GT(place, 0) << item.name << " is not there";
        if (action.tier == Tier::kDevice) {
          EXPECT_EQ(item.in_flight, 0) << item.name << " in use";
        }
        place = 0;
        log.push_back((action.tier == Tier::kDevice ? "free " : "free host ") + item.name);
        cache.freed(action.id, action.tier);
        break;
      }
      case Kind::kCancel:
        EXPECT_TRUE(item.loading && !item.cancelled) << item.name;
        item.cancelled = true;
        log.push_back("cancel " + item.name);
        break;
      case Kind::kAdmit:
        EXPECT_GT(item.device, 0) << item.name << " admitted, but not there";
        EXPECT_EQ(action.count, item.waiting) << item.name;
        item.in_flight += item.waiting;
        item.waiting = 0;
        break;
      case Kind::kFail:
        EXPECT_EQ(action.count, item.waiting) << item.name;
        item.failed += item.waiting;
        item.waiting = 0;
        item.error = action.status;
        break;
    }
  }

  void take(Item& item, Tier tier, int64_t bytes) {
    (tier == Tier::kDevice ? item.device : item.host) = bytes;
    EXPECT_LE(used(tier), cache.tier(tier).budget) << "budget passed by " << item.name;
    EXPECT_EQ(used(tier), cache.tier(tier).used);
  }
};

}  // namespace deltad::testing
