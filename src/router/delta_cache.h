// DeltaCache: decides which variants lie in memory. A pure state machine: its caller tells it what
// happened (a request wants a variant, a load ended, …) and takes the actions that follow. It holds
// no weights, does no I/O and has no threads; the router uses it under its own mutex, and tests
// drive it with a fake clock. Every event costs O(log n).
//
// Two tiers of memory, each with a budget in bytes: the device, where a variant must lie to be
// used, and the host, which keeps what the device gave up (budget 0: there is none, as on the CPU,
// where both are the same memory). Below them is the disk, where every variant lies anyway. A
// budget counts what is loaded, being loaded and not yet freed; bytes are counted before the action
// that takes them is given out, and until the caller has said that they are free.
//
// A variant stays while a request is in flight on it or it is pinned. Else the one with the lowest
// priority (eviction_policy.h) goes first, ties by least recent use, and only if that makes the
// room which somebody waits for. A variant that has waited longer than the age bound chooses its
// victims among those in use: they take no new requests until they have drained, then they go.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "router/eviction_policy.h"

namespace deltad {

enum class Tier { kDevice, kHost };

// Why a copy was dropped.
enum class EvictionReason {
  kRoom,    // idle, and somebody waited for its room
  kAge,     // drained for a variant that had waited past the age bound
  kBudget,  // the budget was lowered
  kAsked,   // evict()
  kRetired  // replaced or removed
};
constexpr size_t kEvictionReasons = 5;

struct CacheOptions {
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;     // 0: no tier of its own
  bool loads_to_host = true;  // false: only what leaves the device comes to the host
  double half_life_seconds = 200;
  double age_bound_seconds = 10;
  int max_loads = 1;           // loads from the disk at once; beside them one promotion
  double retry_seconds = 1.0;  // first back-off after a failed load; doubles up to 60
};

// What the caller is to do. Each of the first six is answered by the event named beside it.
struct CacheAction {
  enum class Kind {
    kMeasure,  // read how large the variant is: measured
    kLoad,     // disk → tier, `bytes` are set aside: load_ended
    kPromote,  // host → device: load_ended
    kDemote,   // copy device → host: demoted
    kFree,     // drop the tier's copy: freed
    kCancel,   // the load or promotion that runs: load_ended, with kCancelled or its result
    kAdmit,    // the waiters, `count` of them, are in flight from now on
    kFail,     // the waiters end with `status`
  };
  Kind kind = Kind::kMeasure;
  VariantId id = 0;
  Tier tier = Tier::kDevice;
  int64_t bytes = 0;
  int64_t count = 0;
  EvictionReason reason = EvictionReason::kRoom;  // of kFree
  Status status;
};

enum class Residency { kDisk, kLoading, kHost, kDevice };

struct CacheEntryInfo {  // a snapshot
  Residency residency = Residency::kDisk;
  int64_t bytes = -1;  // −1: not measured yet
  int64_t waiting = 0, in_flight = 0;
  bool pinned = false, draining = false;
  double priority = kNeverAsked;
  TimePoint last_use{};
  Status error;  // of the last load, next_try says from when on it is tried again; or why it cannot
                 // fit as things are
  TimePoint next_try{};
};

struct CacheTierInfo {
  int64_t budget = 0, used = 0;  // used: loaded, being loaded, not yet freed
  int64_t loading = 0;           // of used: what is being filled
};

// How many requests wait for a variant, by what each waits for.
struct CacheWaiting {
  int64_t load = 0;    // its load or promotion, which runs
  int64_t loader = 0;  // one of the loads of others to end
  int64_t memory = 0;  // room
  int64_t drain = 0;   // its variant is in memory, but must leave it for another first
  int64_t total() const { return load + loader + memory + drain; }
};

struct CacheStats {
  // hit: admitted at once; miss: had to wait. The rest was refused.
  uint64_t requests = 0, hits = 0, misses = 0;
  uint64_t loads = 0, load_failures = 0, loads_cancelled = 0, promotions = 0, demotions = 0;
  std::array<std::array<uint64_t, kEvictionReasons>, 2> evictions{};  // by tier and reason
  uint64_t evicted(Tier tier, EvictionReason reason) const {
    return evictions[static_cast<size_t>(tier)][static_cast<size_t>(reason)];
  }
};

class DeltaCache {
 public:
  // policy null: DecayedRatePolicy with the options' half-life.
  DeltaCache(const CacheOptions& options, const Clock& clock,
             std::unique_ptr<EvictionPolicy> policy = nullptr);

  // Makes a variant known, without loading it. name: for messages.
  VariantId add(const std::string& name);
  // No new requests from now on. Its memory is given back when the last one in flight has been
  // released; waiters keep waiting. Forgotten then.
  void retire(VariantId id);
  // `to` follows `from` under the same name: it takes over the pin, the popularity and those who
  // wait, and is loaded if `from` was.
  void succeed(VariantId from, VariantId to);
  // So many of those that wait for `from` wait for `to` from now on, which is at least as popular,
  // and is loaded if `from` was. A pin goes with them if there is room for it.
  void hand_over(VariantId from, VariantId to, int64_t waiters);
  bool known(VariantId id) const { return entries_.count(id) > 0; }

  // A request for the variant. True: in flight at once. False: waits for kAdmit or kFail. An error
  // if its load failed a moment ago, or it can never fit.
  Result<bool> want(VariantId id);
  void leave(VariantId id, int64_t waiters = 1);  // waiters that have gone
  void release(VariantId id);                     // one in flight has ended

  // Loads it if there is room or what is idle can make it.
  Status prefetch(VariantId id);
  // Loads it and keeps it. kConflict if the pinned ones would not fit together. One that is not
  // measured yet is let go again, with an error, if that turns out then.
  Status pin(VariantId id);
  void unpin(VariantId id);
  // Out of memory now; kConflict if it is pinned or in use.
  Status evict(VariantId id);

  void measured(VariantId id, int64_t bytes, const std::string& digest);
  // Measured without having been asked for, so that nobody has to wait for it later. Says nothing
  // of a variant that is in memory.
  void measured_before(VariantId id, int64_t bytes, const std::string& digest);
  // The load found another file than the one that was measured: it is measured again. Its waiters
  // keep waiting. In place of load_ended.
  void load_outdated(VariantId id);
  // bytes: what the loaded variant really takes, at most what was set aside.
  void load_ended(VariantId id, const Status& status, int64_t bytes);
  // Instead of a promotion: what lies on the disk is no longer what the host's copy was read from.
  // The copy goes, and the variant is loaded for those who wait: measured anew, or only as it was
  // measured. In place of load_ended.
  void copy_outdated(VariantId id, bool measure);
  void demoted(VariantId id, bool ok);
  void freed(VariantId id, Tier tier);

  // Takes effect as far as pins and requests in flight allow; the rest drains. kResourceExhausted
  // if the pinned variants do not fit.
  Status set_budget(Tier tier, int64_t bytes);
  // What time alone brings about. wake_time: when to call it next (max: not needed).
  void tick();
  TimePoint wake_time() const;

  std::vector<CacheAction> take_actions() { return std::exchange(actions_, {}); }

  CacheEntryInfo info(VariantId id) const;
  const std::string& digest(VariantId id) const { return at(id).digest; }  // as measured
  // Of a load or promotion that runs: whence it comes, and where it goes.
  bool loads_from_disk(VariantId id) const { return at(id).job == Job::kLoad; }
  Tier filling(VariantId id) const {
    return at(id).device == Place::kFilling ? Tier::kDevice : Tier::kHost;
  }
  CacheTierInfo tier(Tier tier) const;
  CacheWaiting waiting() const;
  const CacheStats& stats() const { return stats_; }

 private:
  enum class Place { kNone, kFilling, kHere, kCopyingOut, kFreeing };
  enum class Job { kNone, kMeasure, kLoad, kPromote };

  struct Entry {
    std::string name, digest;
    int64_t bytes = -1;
    double priority = kNeverAsked;
    TimePoint last_use{};
    int64_t waiting = 0, in_flight = 0;
    bool pinned = false, prefetch = false, retired = false;
    bool draining = false;    // chosen as a victim while in use
    bool gone = false;        // had to leave the device for another: cannot be called back
    bool cancelling = false;  // the job was told to stop
    bool dropped = false;     // evict() found it on its way to where it cannot be freed yet
    bool outdated = false;    // measured before the disk had another version; until it is freed
    Job job = Job::kNone;
    Place device = Place::kNone, host = Place::kNone;
    EvictionReason why = EvictionReason::kRoom;  // while it is copied out
    TimePoint since{};                           // the first of the waiters came
    TimePoint began{};                           // the job
    Status error;
    TimePoint next_try{};
    double back_off = 0;

    bool copying() const {  // device → host
      return host == Place::kFilling && job == Job::kNone;
    }
    bool wanted() const { return waiting > 0 || prefetch || pinned; }
    bool asks_now() const { return waiting > 0 || prefetch || (pinned && error.ok()); }
  };
  // The order of victims: first those that have drained, then by priority, then by last use.
  struct Rank {
    bool stays;
    double priority;
    TimePoint last_use;
    VariantId id;
    bool operator<(const Rank& other) const;
  };
  struct Memory {
    int64_t budget = 0, used = 0;
    int64_t leaving = 0;  // of used: being copied out or freed
    int64_t idle = 0;     // of used: could be freed now
    int64_t filling = 0;  // of used
    std::set<Rank> victims;
    int64_t free() const { return budget - used; }
  };
  class Edit;  // takes an entry out of all indexes, and puts it back as it has become

  Entry& at(VariantId id);
  const Entry& at(VariantId id) const;
  void index(VariantId id, const Entry& e, int sign);
  void settle(VariantId id);
  void act(CacheAction::Kind kind, VariantId id, Tier tier = Tier::kDevice);

  // One look over the queue.
  struct Pass {
    int64_t promised = 0;  // of what is free or will be, to those at the head of the queue
    int64_t shortage = 0;  // what variants in use must give up
    bool keep = false;     // too early to say whether those that drain are still needed
  };
  enum class HostRoom { kNone, kComing, kThere };

  void pump();
  void give_room(VariantId id, Pass* pass);
  void make_device_room(int64_t needed, Pass* pass, TimePoint since = TimePoint::min());
  bool waits_for_colder(VariantId victim, int64_t needed, TimePoint since);
  double reload_seconds(VariantId id) const;
  bool evict_device(VariantId id, EvictionReason reason);
  HostRoom host_room(int64_t bytes, const Rank& rank);
  HostRoom find_host_room(int64_t bytes, const Rank& rank, std::vector<VariantId>* victims) const;
  void free_unused(VariantId id);
  void free_copy(VariantId id, Tier tier, EvictionReason reason);
  void start_fill(VariantId id, Job job, Tier tier);
  int& running(Job job) { return job == Job::kPromote ? promotions_ : loads_; }
  void drain(const Pass& pass);
  void stop_draining(VariantId id, Entry& e);
  void request_load(VariantId id, bool pin);
  void admit(VariantId id);
  void fail(VariantId id, Status status, bool back_off = false);
  Status can_never_fit(const Entry& e) const;

  const CacheOptions options_;
  const Clock& clock_;
  const std::unique_ptr<EvictionPolicy> policy_;
  const Duration age_bound_;

  std::unordered_map<VariantId, Entry> entries_;
  VariantId last_id_ = 0;
  Memory device_, host_;
  std::set<Rank> busy_;  // on the device, in use, not pinned, not chosen yet: victims to drain
  std::vector<VariantId> draining_;             // chosen, in the order of choice
  int64_t going_ = 0;                           // bytes in use that will leave by themselves
  int64_t pinned_ = 0;                          // bytes of all pinned ones that are measured
  double seconds_per_byte_ = 0;                 // of loads from disk, lately
  double seconds_per_byte_promoted_ = 0;        // of those from the host
  TimePoint patience_ends_ = TimePoint::max();  // when somebody stops waiting for a colder one
  // Requests that wait for a load that runs; for a variant that drains; for all others.
  int64_t waiting_loads_ = 0, waiting_drains_ = 0, waiting_room_ = 0;
  std::set<std::pair<TimePoint, VariantId>> queue_;    // wait for room
  std::set<std::pair<TimePoint, VariantId>> retries_;  // pinned, failed, tried again then
  std::unordered_set<std::string> loading_digests_;
  int loads_ = 0, promotions_ = 0;  // that run
  std::vector<CacheAction> actions_;
  CacheStats stats_;
};

}  // namespace deltad
