#include "server/pool/pool_service.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/log.h"
#include "io/file_reader.h"

namespace deltad {
namespace {

constexpr size_t kMostWaiting = 16;  // operations
constexpr size_t kMostEnded = 64;    // that are remembered

bool ended(const PoolOperation& operation) {
  return operation.state != PoolOperationState::kQueued &&
         operation.state != PoolOperationState::kRunning;
}

Status no_adapter(const std::string& name) {
  return not_found(fmt::format("the adapter pool has no adapter '{}'", name));
}

}  // namespace

std::string pool_member_name(const std::string& digest) { return kMemberPrefix + digest; }

const char* pool_operation_kind_name(PoolOperationKind kind) {
  switch (kind) {
    case PoolOperationKind::kAdd:
      return "add";
    case PoolOperationKind::kRemove:
      return "remove";
    case PoolOperationKind::kBudget:
      return "budget";
  }
  return "?";
}

const char* pool_operation_state_name(PoolOperationState state) {
  switch (state) {
    case PoolOperationState::kQueued:
      return "queued";
    case PoolOperationState::kRunning:
      return "running";
    case PoolOperationState::kDone:
      return "done";
    case PoolOperationState::kFailed:
      return "failed";
    case PoolOperationState::kCancelled:
      return "cancelled";
  }
  return "?";
}

class PoolService::Links final : public PoolScorer, public PoolPublisher {
 public:
  explicit Links(PoolService& service) : service_(service) {}

  Result<double> score(const std::string& path, const std::vector<Question>& questions) override {
    Result<double> out = 0.0;
    here([&] { out = service_.scorer_.score(path, questions); });
    return out;
  }
  Status publish(const PoolView& view) override {
    Status out;
    here([&] {
      Router::Publication publication;
      for (const PoolMember& m : view.members) {
        const std::string name = pool_member_name(m.digest);
        publication.members.push_back({name, m.path});
        for (const std::string& adapter : m.adapters) publication.names[adapter] = name;
      }
      out = service_.router_.publish(publication);
    });
    return out;
  }

  // Calls come from the quiet thread, except while the pool is opened.
  bool quiet = false;

 private:
  void here(const std::function<void()>& what) {
    if (quiet)
      service_.quiet_.call(what);
    else
      what();
  }
  PoolService& service_;
};

PoolService::PoolService(Router& router, const ScoringOptions& scoring)
    : router_(router), scorer_(router, scoring), links_(std::make_unique<Links>(*this)) {}

Result<std::unique_ptr<PoolService>> PoolService::start(const ScoringOptions& scoring,
                                                        const MakePool& make, Router& router) {
  std::unique_ptr<PoolService> service(new PoolService(router, scoring));
  ASSIGN_OR_RETURN(service->pool_, make(*service->links_, *service->links_));
  service->links_->quiet = true;
  {
    MutexLock lock(service->mutex_);
    service->view_ = service->pool_->view();
  }
  service->thread_ = std::thread([self = service.get()] { self->loop(); });
  return service;
}

PoolService::~PoolService() { stop(); }

void PoolService::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    for (PoolOperation& operation : operations_)
      if (operation.state == PoolOperationState::kQueued)
        end(&operation, cancelled("the server is shutting down"), nullptr);
    changed_.notify_all();
  }
  scorer_.cancel();
  if (thread_.joinable()) thread_.join();
}

PoolOperation* PoolService::find(uint64_t id) {
  const auto at = std::find_if(operations_.begin(), operations_.end(),
                               [&](const PoolOperation& o) { return o.id == id; });
  return at == operations_.end() ? nullptr : &*at;
}

Result<PoolOperation> PoolService::enqueue(PoolOperation operation) {
  if (stopping_) return unavailable("the server is shutting down");
  size_t waiting = 0;
  for (const PoolOperation& o : operations_) waiting += o.state == PoolOperationState::kQueued;
  if (waiting >= kMostWaiting)
    return resource_exhausted(
        fmt::format("{} operations of the adapter pool wait already, which is the limit", waiting));
  operation.id = ++last_id_;
  operation.created = static_cast<int64_t>(std::time(nullptr));
  operations_.push_back(operation);
  changed_.notify_all();
  return operation;
}

// Whether an operation that has not ended adds it.
bool PoolService::name_comes(const std::string& name) const {
  return std::any_of(operations_.begin(), operations_.end(), [&](const PoolOperation& o) {
    return o.kind == PoolOperationKind::kAdd && o.name == name && !ended(o);
  });
}

Result<PoolOperation> PoolService::add(const std::string& name, const std::string& path,
                                       const std::string& questions) {
  for (const auto& [what, file] : {std::pair("adapter", &path), std::pair("questions", &questions)})
    if (!file_exists(*file) && !is_directory(*file))
      return invalid_argument(fmt::format("{}: '{}' does not exist", what, *file));
  if (name.starts_with(kMemberPrefix))
    return invalid_argument(
        fmt::format("names that begin with '{}' are those of the pool's members", kMemberPrefix));
  MutexLock lock(mutex_);
  if (view_.adapter(name) != nullptr || name_comes(name))
    return conflict(
        fmt::format("the adapter pool has an adapter '{}' already: remove it first", name));
  PoolOperation operation;
  operation.kind = PoolOperationKind::kAdd;
  operation.name = name;
  operation.path = path;
  operation.questions = questions;
  // Nobody takes the name while the adapter is on its way.
  RETURN_IF_ERROR(router_.reserve(name));
  Result<PoolOperation> queued = enqueue(std::move(operation));
  if (!queued.ok()) router_.release_name(name);
  return queued;
}

Result<PoolOperation> PoolService::remove(const std::string& name) {
  MutexLock lock(mutex_);
  if (view_.adapter(name) == nullptr && !name_comes(name)) return no_adapter(name);
  PoolOperation operation;
  operation.kind = PoolOperationKind::kRemove;
  operation.name = name;
  return enqueue(std::move(operation));
}

Result<PoolOperation> PoolService::set_budget(int64_t bytes) {
  if (bytes < 1)
    return invalid_argument(fmt::format("a budget of {} bytes: expected a number above 0", bytes));
  MutexLock lock(mutex_);
  PoolOperation operation;
  operation.kind = PoolOperationKind::kBudget;
  operation.budget = bytes;
  return enqueue(std::move(operation));
}

Result<PoolOperation> PoolService::cancel(uint64_t id) {
  MutexLock lock(mutex_);
  PoolOperation* operation = find(id);
  if (operation == nullptr)
    return not_found(fmt::format("the adapter pool knows no operation {}", id));
  if (ended(*operation)) return conflict(fmt::format("operation {} has ended", id));
  if (operation->state == PoolOperationState::kQueued)
    end(operation, cancelled("cancelled before it began"), nullptr);
  else
    scorer_.cancel();
  return *operation;
}

PoolView PoolService::view() const {
  MutexLock lock(mutex_);
  return view_;
}

std::vector<PoolOperation> PoolService::operations() const {
  MutexLock lock(mutex_);
  return {operations_.rbegin(), operations_.rend()};
}

Result<PoolOperation> PoolService::operation(uint64_t id) const {
  MutexLock lock(mutex_);
  for (const PoolOperation& operation : operations_)
    if (operation.id == id) return operation;
  return not_found(fmt::format("the adapter pool knows no operation {}", id));
}

PoolFigures PoolService::figures() const {
  MutexLock lock(mutex_);
  PoolFigures out;
  out.budget = view_.budget;
  out.bytes = view_.bytes;
  out.adapters = static_cast<int64_t>(view_.adapters.size());
  out.members = static_cast<int64_t>(view_.members.size());
  for (const PoolOperation& operation : operations_) out.waiting += !ended(operation);
  out.operations = results_;
  return out;
}

void PoolService::end(PoolOperation* operation, Status status, const PoolReport* report) {
  if (operation->kind == PoolOperationKind::kAdd) router_.release_name(operation->name);
  operation->state = status.ok()                         ? PoolOperationState::kDone
                     : status.code() == Code::kCancelled ? PoolOperationState::kCancelled
                                                         : PoolOperationState::kFailed;
  operation->doing.clear();
  operation->status = std::move(status);
  operation->ended = Clock::real().now();
  if (report != nullptr) operation->report = *report;
  ++results_[static_cast<size_t>(operation->kind)][static_cast<size_t>(operation->state) -
                                                   static_cast<size_t>(PoolOperationState::kDone)];
}

void PoolService::loop() {
  for (;;) {
    PoolOperation next;
    {
      MutexLock lock(mutex_);
      const auto is_queued = [](const PoolOperation& o) {
        return o.state == PoolOperationState::kQueued;
      };
      auto at = operations_.end();
      while (!stopping_ && (at = std::find_if(operations_.begin(), operations_.end(), is_queued)) ==
                               operations_.end())
        changed_.wait(mutex_);
      if (stopping_) return;
      at->state = PoolOperationState::kRunning;
      at->started = Clock::real().now();
      next = *at;
      scorer_.allow();
    }
    perform(next);
  }
}

Status PoolService::carry_out(const PoolOperation& operation, PoolReport* report) {
  const auto progress = [&](const std::string& doing, const PoolReport& so_far) {
    quiet_.call([&] {
      MutexLock lock(mutex_);
      PoolOperation* at = find(operation.id);
      at->doing = doing;
      at->report = so_far;
    });
  };
  switch (operation.kind) {
    case PoolOperationKind::kAdd:
      return pool_->add(operation.name, operation.path, operation.questions, progress, report);
    case PoolOperationKind::kRemove:
      return pool_->remove(operation.name);
    case PoolOperationKind::kBudget:
      return pool_->set_budget(operation.budget, progress, report);
  }
  return internal_error("an operation of the adapter pool that nobody performs");
}

void PoolService::perform(const PoolOperation& operation) {
  PoolReport report;
  Status status;
  quiet_.run([&] { status = carry_out(operation, &report); });
  const std::string what = fmt::format(
      "adapter pool: operation {}, {} {}", operation.id, pool_operation_kind_name(operation.kind),
      operation.kind == PoolOperationKind::kBudget ? std::to_string(operation.budget)
                                                   : operation.name);
  if (status.ok())
    log_info("{}: done", what);
  else
    log_warning("{}: {}", what, status.message());
  const PoolView view = pool_->view();
  MutexLock lock(mutex_);
  view_ = view;
  end(find(operation.id), std::move(status), &report);
  size_t over = 0;
  for (const PoolOperation& o : operations_) over += deltad::ended(o);
  for (auto it = operations_.begin(); over > kMostEnded && it != operations_.end();) {
    if (deltad::ended(*it)) {
      it = operations_.erase(it);
      --over;
    } else {
      ++it;
    }
  }
}

Result<std::unique_ptr<PoolService>> PoolService::start(const PoolServiceOptions& options,
                                                        const WeightTable& table,
                                                        const std::string& base_digest,
                                                        Router& router) {
  const std::string where = fmt::format("adapter pool in {}", options.folder);
  Result<std::unique_ptr<DurableFolder>> folder = DurableFolder::open(options.folder);
  if (!folder.ok()) return folder.status().in(where);
  auto service = start(
      options.scoring,
      [&](PoolScorer& scorer, PoolPublisher& publisher) {
        return AdapterPool::open(options.pool, table, base_digest, **folder, scorer, publisher);
      },
      router);
  if (!service.ok()) return service.status().in(where);
  (*service)->folder_ = std::move(*folder);
  return service;
}

}  // namespace deltad
