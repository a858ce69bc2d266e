// A router and an engine that do nothing by themselves: a test reads what was submitted and emits
// the events.
#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "router/router.h"
#include "tests/unit/server/fake_text.h"

namespace deltad::testing {

class FakeRouter final : public Router {
 public:
  FakeRouter() : text_(fake_text()) {}

  Result<ModelHandle> resolve(const std::string& model) override {
    if (model.empty() || model == base_) return ModelHandle{base_, true, text_, nullptr};
    if (model == "math" || model == "org/poet") return ModelHandle{model, false, text_, nullptr};
    if (model == "broken") throw std::runtime_error("a fault of the router's");
    return not_found("The model does not exist. Models: base, math, org/poet");
  }

  Result<Ticket> submit(const ModelHandle& model, Request request) override {
    MutexLock lock(mutex_);
    if (!refusal_.ok() && submitted_.size() >= refuse_after_) return refusal_;
    submitted_.push_back(std::make_shared<Request>(std::move(request)));
    models_.push_back(model.name);
    changed_.notify_all();
    return submitted_.size();  // ticket = index + 1
  }
  void cancel(Ticket ticket) override {
    MutexLock lock(mutex_);
    cancelled_.push_back(ticket - 1);
    changed_.notify_all();
  }
  // Each is only written down, and answered with what change_result() was told.
  Status add(const VariantSource& source) override { return changed("add", source); }
  Status replace(const VariantSource& source) override { return changed("replace", source); }
  Status remove(const std::string& name) override { return changed("remove", {name, ""}); }
  Status pin(const std::string& name) override { return changed("pin", {name, ""}); }
  Status unpin(const std::string& name) override { return changed("unpin", {name, ""}); }
  Status prefetch(const std::string& name) override { return changed("prefetch", {name, ""}); }
  Status evict(const std::string& name) override { return changed("evict", {name, ""}); }
  Status set_limit(const std::string& name, const VariantLimit& limit) override {
    return changed("limit", {name, "", limit});
  }
  Status publish(const Publication& publication) override {
    MutexLock lock(mutex_);
    publications_.push_back(publication);
    return Status();
  }
  Status reserve(const std::string& name) override {
    if (name == "math") return conflict("a variant is called 'math'");
    return changed("reserve", {name, ""});
  }
  void release_name(const std::string& name) override { (void)changed("release", {name, ""}); }
  Result<ModelHandle> open_private(const VariantSource& source) override {
    RETURN_IF_ERROR(changed("open", {"", source.path}));
    return ModelHandle{source.path, false, text_, nullptr};
  }
  void close_private(const ModelHandle& model) override {
    (void)changed("close", {"", model.name});
  }
  Status set_cache_bytes(int64_t) override { return unimplemented("not used"); }
  void set_queue_bounds(int64_t, int64_t) override {}
  void set_load_rate(int64_t) override {}
  void shutdown(TimePoint) override {}

  std::vector<VariantInfo> variants() const override {
    VariantInfo math;
    math.name = "math";
    math.path = "/variants/math";
    math.created = 5;
    math.state = VariantState::kResident;
    math.bytes = 1000;
    math.loads = 1;
    math.load_seconds = 0.25;
    VariantInfo poet = math;
    poet.name = "org/poet";
    poet.state = VariantState::kRegistered;
    poet.bytes = 0;
    return {math, poet};
  }
  RouterStats stats() const override {
    RouterStats stats;
    stats.waiting.load = 5;
    stats.fit = 2;
    for (const VariantInfo& info : variants()) {
      VariantRow& row = stats.rows.emplace_back();
      row.name = info.name;
      row.add(info.state, static_cast<int64_t>(info.bytes));
      row.load_seconds = info.load_seconds;
      row.counts.loads = info.loads;
    }
    return stats;
  }
  Result<VariantInfo> variant(const std::string& name) const override {
    for (VariantInfo& info : variants())
      if (info.name == name) return info;
    // As one that has just been added.
    for (const auto& [what, source] : changes())
      if (what == "add" && source.name == name) {
        VariantInfo info;
        info.name = name;
        info.path = source.path;
        info.limit = source.limit;
        return info;
      }
    return not_found("The model does not exist. Models: base, math, org/poet");
  }
  CacheTierInfo cache_tier(Tier tier) const override {
    return tier == Tier::kDevice ? CacheTierInfo{5000, 1600, 600} : CacheTierInfo{};
  }
  const std::string& base_name() const override { return base_; }

  // For tests.
  using Change = std::pair<std::string, VariantSource>;
  std::vector<Change> changes() const {
    MutexLock lock(mutex_);
    return changes_;
  }
  std::vector<Publication> publications() const {
    MutexLock lock(mutex_);
    return publications_;
  }
  void change_result(Status status) {
    MutexLock lock(mutex_);
    change_result_ = std::move(status);
  }
  void refuse(Status status, size_t after = 0) {
    MutexLock lock(mutex_);
    refusal_ = std::move(status);
    refuse_after_ = after;
  }
  std::shared_ptr<Request> request(size_t index) {
    MutexLock lock(mutex_);
    return submitted_.at(index);
  }
  std::string model(size_t index) {
    MutexLock lock(mutex_);
    return models_.at(index);
  }
  size_t count() {
    MutexLock lock(mutex_);
    return submitted_.size();
  }
  std::vector<size_t> cancelled() {
    MutexLock lock(mutex_);
    return cancelled_;
  }
  // False if that does not happen within a minute.
  bool wait_submitted(size_t count) {
    return wait([&]() REQUIRES(mutex_) { return submitted_.size() >= count; });
  }
  bool wait_cancelled(size_t count) {
    return wait([&]() REQUIRES(mutex_) { return cancelled_.size() >= count; });
  }

  void emit(size_t index, const TokenEvent& event) { request(index)->on_event(event); }
  void token(size_t index, int32_t id, float logprob = -1, std::vector<TokenLogprob> top = {}) {
    TokenEvent event;
    event.token = id;
    event.logprob = logprob;
    event.top = std::move(top);
    emit(index, event);
  }
  void text(size_t index, std::string_view bytes) {
    for (const char c : bytes) token(index, static_cast<unsigned char>(c));
  }
  void finish(size_t index, FinishReason reason, int32_t cached = 0, Status status = {}) {
    TokenEvent event;
    event.kind = TokenEvent::Kind::kFinished;
    event.reason = reason;
    event.status = std::move(status);
    event.prompt_tokens = static_cast<int32_t>(request(index)->prompt.size());
    event.cached_tokens = cached;
    event.admitted = event.first_token = Clock::real().now();
    emit(index, event);
    request(index)->on_event = nullptr;
  }

  std::shared_ptr<TextAssets> text_assets() { return text_; }

 private:
  Status changed(const char* what, VariantSource source) {
    MutexLock lock(mutex_);
    if (change_result_.ok()) changes_.emplace_back(what, std::move(source));
    return change_result_;
  }

  template <typename Condition>
  bool wait(Condition condition) NO_THREAD_SAFETY_ANALYSIS {
    const TimePoint deadline = Clock::real().now() + std::chrono::seconds(60);
    MutexLock lock(mutex_);
    while (!condition()) {
      if (!changed_.wait_until(mutex_, deadline)) return condition();
    }
    return true;
  }

  const std::string base_ = "base";
  const std::shared_ptr<TextAssets> text_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<Request>> submitted_ GUARDED_BY(mutex_);
  std::vector<std::string> models_ GUARDED_BY(mutex_);
  std::vector<size_t> cancelled_ GUARDED_BY(mutex_);
  Status refusal_ GUARDED_BY(mutex_);
  size_t refuse_after_ GUARDED_BY(mutex_) = 0;
  std::vector<Change> changes_ GUARDED_BY(mutex_);
  Status change_result_ GUARDED_BY(mutex_);
  std::vector<Publication> publications_ GUARDED_BY(mutex_);
};

class FakeEngine final : public Engine {
 public:
  Result<RequestHandle> submit(Request) override { return unavailable("not used"); }
  Status check(const Request&) const override { return {}; }
  void cancel(RequestHandle) override {}
  void shutdown(TimePoint) override {}
  EngineStats stats() const override {
    EngineStats stats;
    stats.running = 3;
    stats.waiting = 2;
    stats.kv_blocks = 100;
    stats.kv_blocks_used = 25;
    stats.block_tokens = 16;
    stats.last_step_rows = 14;
    return stats;
  }
  int32_t max_context() const override { return context; }
  bool healthy() const override { return is_healthy; }
  Status device_health() const override { return device; }

  int32_t context = 512;
  bool is_healthy = true;
  Status device;
};

}  // namespace deltad::testing
