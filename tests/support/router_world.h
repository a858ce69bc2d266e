// RouterWorld: a RouterCore with a world around it that does nothing by itself: a disk whose loads
// end when the test says so, an engine whose requests end when it says so, clients that count their
// answers, and memory that is counted by what is really alive, handles in the engine included.
// Everything the core asks for is checked as it comes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/router_core.h"
#include "tests/support/fake_clock.h"

namespace deltad::testing {

class RouterWorld {
 public:
  struct File {
    int64_t bytes = 0;
    std::string digest;
  };
  struct Asked {  // one request, as its client sees it
    std::string name;
    Ticket ticket = 0;
    int ends = 0;
    FinishReason reason = FinishReason::kNone;
    Status status;       // of its end, or why it was refused
    std::string digest;  // of the variant that the engine got it with
    bool refused = false, in_engine = false, engine_cancelled = false;
  };

  explicit RouterWorld(const RouterCoreOptions& options)
      : releases(std::make_shared<ReleaseBox>()),
        core(options, nullptr, releases, clock),
        budget{options.cache.device_bytes, options.cache.host_bytes} {}
  ~RouterWorld() { engine.clear(); }

  static RouterCoreOptions options(int64_t device, int64_t host = 0, int loads = 4) {
    RouterCoreOptions out;
    out.base_name = "base";
    out.cache.device_bytes = device;
    out.cache.host_bytes = host;
    out.cache.max_loads = loads;
    return out;
  }

  // The catalog. Each version lies at a path of its own.
  Status add(const std::string& name, int64_t bytes, const std::string& digest = "") {
    const Status status = core.add(entry(name, bytes, digest));
    run();
    return status;
  }
  Status replace(const std::string& name, int64_t bytes, const std::string& digest = "") {
    const Status status = core.replace(entry(name, bytes, digest)).status();
    run();
    return status;
  }
  Status remove(const std::string& name) {
    const Status status = core.remove(name);
    run();
    return status;
  }

  // The adapter pool. members: name → bytes; each lies at a path made of its name, and its digest
  // is that path.
  Status publish(const std::map<std::string, int64_t>& members,
                 const std::map<std::string, std::string>& names) {
    PoolListing listing;
    listing.names = names;
    for (const auto& [member, bytes] : members) {
      auto out = entry(member, bytes, "");
      files.erase(out->path);
      out->path = "pool/" + member;
      files[out->path] = {bytes, out->path};
      listing.members.push_back(std::move(out));
    }
    const Status status = core.publish(listing);
    run();
    return status;
  }

  // The clients. Returns the request's number; refused ones have one too.
  size_t ask(const std::string& name, TimePoint deadline = TimePoint::max()) {
    const size_t number = asked.size();
    asked.emplace_back();
    asked[number].name = name;
    const Result<ModelHandle> model = core.resolve(name);
    if (!model.ok()) return refuse(number, model.status());
    Request request;
    request.prompt = {1};
    request.deadline = deadline;
    request.on_event = [this, number](const TokenEvent& event) {
      Asked& a = asked[number];
      ++a.ends;
      ++ends;
      a.reason = event.reason;
      a.status = event.status;
    };
    Result<RouterCore::Submitted> submitted = core.submit(*model, std::move(request));
    if (!submitted.ok()) {
      run();
      return refuse(number, submitted.status());
    }
    asked[number].ticket = submitted->ticket;
    by_ticket[submitted->ticket] = number;
    if (submitted->ready) take(submitted->ticket, std::move(*submitted->ready));
    run();
    return number;
  }
  void leave(size_t number) {
    core.cancel(asked[number].ticket);
    run();
  }
  // The engine ends a request; the last copy of its handle goes with it.
  void finish(size_t number, FinishReason reason = FinishReason::kStop, Status status = {},
              int64_t output_tokens = 0) {
    const auto it = engine.find(number);
    ASSERT_NE(it, engine.end());
    Request request = std::move(it->second);
    engine.erase(it);
    asked[number].in_engine = false;
    request.variant.reset();
    core.finished(asked[number].ticket, output_tokens);
    request.on_event(ended_event(reason, std::move(status)));
    tick();
  }

  // The disk.
  bool loading(const std::string& name) const { return job_of(name) != jobs.end(); }
  void loaded(const std::string& name) { end_load(job_of(name)->first, Status()); }
  void load_fails(const std::string& name, const std::string& why) {
    end_load(job_of(name)->first, unavailable(why));
  }
  void end_load(VariantId id, Status status) {
    RouterEffect job = std::move(jobs.at(id));
    jobs.erase(id);
    Memory& to = memory[job.tier == Tier::kHost];
    to.loading -= job.bytes;
    job.variant.reset();
    if (status.ok()) {
      ++loads[job.entry->name];
      Result<VariantRef> made = make_variant(job);
      if (job.kind == RouterEffect::Kind::kDemote)
        core.demoted(id, std::move(made));
      else
        core.load_ended(id, std::move(made), 1);
    } else if (job.kind == RouterEffect::Kind::kDemote) {
      core.demoted(id, status);
    } else {
      core.load_ended(id, status, 1);
    }
    run();
  }
  // The load finds that the file has become another one. False: it ends with an error.
  bool load_outdated(VariantId id, const File& now) {
    const RouterEffect job = std::move(jobs.at(id));
    jobs.erase(id);
    memory[job.tier == Tier::kHost].loading -= job.bytes;
    files[job.entry->path] = now;
    const bool again = core.load_outdated(id);
    if (!again) core.load_ended(id, unavailable("the file changes all the time"), 1);
    run();
    return again;
  }
  // A promotion finds that the file has become another one than the host's copy was read from.
  void copy_outdated(VariantId id, const File& now) {
    RouterEffect job = std::move(jobs.at(id));
    jobs.erase(id);
    memory[job.tier == Tier::kHost].loading -= job.bytes;
    files[job.entry->path] = now;
    job.variant.reset();
    core.copy_outdated(id);
    run();
  }
  void measured(size_t index) {
    const CatalogEntryRef entry = measuring.at(index);
    measuring.erase(measuring.begin() + static_cast<std::ptrdiff_t>(index));
    const auto file = files.find(entry->path);
    if (file == files.end())
      core.measured(entry->id, not_found(entry->path + " is gone"));
    else
      core.measured(entry->id, VariantSize{file->second.bytes, file->second.digest});
    run();
  }

  void tick(double seconds = 0) {
    clock.advance(seconds);
    core.tick();
    run();
  }
  VariantInfo info(const std::string& name) const {
    for (const VariantInfo& info : core.variants())
      if (info.name == name) return info;
    return {};
  }
  bool resident(const std::string& name) const {
    return info(name).state == VariantState::kResident;
  }
  // Bytes that are really taken.
  int64_t used(Tier tier) const {
    const Memory& m = memory[tier == Tier::kHost];
    return m.loading + *m.alive;
  }

  // Carries out what the core asks for.
  void run() {
    for (auto effects = core.take_effects(); !effects.empty(); effects = core.take_effects())
      for (RouterEffect& effect : effects) perform(std::move(effect));
    while (measure_at_once && !measuring.empty()) measured(0);
  }

  FakeClock clock;
  std::shared_ptr<ReleaseBox> releases;
  RouterCore core;
  std::map<std::string, File> files;  // by path
  std::vector<Asked> asked;
  std::map<Ticket, size_t> by_ticket;
  std::map<size_t, Request> engine;        // by number
  std::map<VariantId, RouterEffect> jobs;  // loads and copies that run
  std::vector<CatalogEntryRef> measuring;
  std::map<std::string, int> loads;  // that succeeded, by name
  int64_t ends = 0;                  // of all requests
  int64_t saves = 0;                 // loaded variants take so many bytes less than measured
  bool measure_at_once = true;
  bool engine_refuses = false;
  int64_t budget[2];
  std::shared_ptr<const TextAssets> text;  // of the versions added from now on

 private:
  struct Memory {
    int64_t loading = 0;
    std::shared_ptr<int64_t> alive = std::make_shared<int64_t>(0);
  };

  CatalogEntryRef entry(const std::string& name, int64_t bytes, const std::string& digest) {
    auto out = std::make_shared<CatalogEntry>();
    out->name = name;
    out->path = name + "#" + std::to_string(++versions_);
    out->text = text;
    files[out->path] = {bytes, digest.empty() ? out->path : digest};
    return out;
  }
  size_t refuse(size_t number, Status status) {
    asked[number].refused = true;
    asked[number].status = std::move(status);
    return number;
  }
  std::map<VariantId, RouterEffect>::const_iterator job_of(const std::string& name) const {
    return std::find_if(jobs.begin(), jobs.end(),
                        [&](const auto& job) { return job.second.entry->name == name; });
  }

  // A variant whose bytes count as long as it is alive.
  VariantRef make_variant(const RouterEffect& effect) {
    const int64_t bytes = effect.bytes - (effect.kind == RouterEffect::Kind::kLoad ? saves : 0);
    auto alive = memory[effect.tier == Tier::kHost].alive;
    *alive += bytes;
    auto* variant = new Variant;
    variant->name = effect.entry->name;
    variant->digest = effect.digest;
    variant->bytes = static_cast<size_t>(bytes);
    return VariantRef(variant, [alive, bytes](const Variant* gone) {
      *alive -= bytes;
      delete gone;
    });
  }

  void take(Ticket ticket, Request request) {
    if (engine_refuses) {
      const auto on_event = request.on_event;
      request = Request();
      core.dispatched(ticket, resource_exhausted("the engine is full"));
      on_event(ended_event(FinishReason::kError, resource_exhausted("the engine is full")));
      return;
    }
    const size_t number = by_ticket.at(ticket);
    Asked& a = asked[number];
    EXPECT_FALSE(a.in_engine);
    EXPECT_EQ(a.ends, 0);
    a.in_engine = true;
    if (request.variant) a.digest = request.variant->digest;
    EXPECT_EQ(request.variant == nullptr, a.name == "base");
    engine[number] = std::move(request);
    core.dispatched(ticket, static_cast<RequestHandle>(number + 1));
  }

  void perform(RouterEffect effect) {
    using Kind = RouterEffect::Kind;
    switch (effect.kind) {
      case Kind::kMeasure:
        measuring.push_back(effect.entry);
        break;
      case Kind::kLoad:
      case Kind::kPromote:
      case Kind::kDemote: {
        const VariantId id = effect.entry->id;
        EXPECT_EQ(jobs.count(id), 0u) << "two loads of one variant";
        for (const auto& [other, job] : jobs)
          if (effect.kind == Kind::kLoad && job.kind == Kind::kLoad) {
            EXPECT_NE(job.digest, effect.digest) << "two loads of one digest";
          }
        EXPECT_EQ(effect.variant == nullptr, effect.kind == Kind::kLoad);
        Memory& to = memory[effect.tier == Tier::kHost];
        to.loading += effect.bytes;
        EXPECT_LE(used(effect.tier), budget[effect.tier == Tier::kHost])
            << "the budget is passed by " << effect.entry->name;
        jobs[id] = std::move(effect);
        break;
      }
      case Kind::kFree: {
        if (effect.tier == Tier::kDevice) {
          for (const auto& [number, request] : engine)
            EXPECT_NE(request.variant.get(), effect.variant.get()) << "evicted while in use";
        }
        EXPECT_EQ(effect.variant.use_count(), 1);
        effect.variant.reset();
        core.freed(effect.entry->id, effect.tier);
        break;
      }
      case Kind::kDispatch:
        take(effect.ticket, std::move(effect.request));
        break;
      case Kind::kEnd:
        effect.on_event(effect.event);
        break;
      case Kind::kCancel:
        asked[static_cast<size_t>(effect.handle - 1)].engine_cancelled = true;
        break;
    }
  }

  Memory memory[2];
  int versions_ = 0;
};

}  // namespace deltad::testing
