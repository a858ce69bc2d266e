#include "tests/support/cuda_on_cpu/runtime/schedule.h"

#include <algorithm>
#include <unordered_set>

#include "base/check.h"
#include "tests/support/cuda_on_cpu/runtime/gpu.h"

namespace deltad::emulated_gpu {

namespace {

constinit thread_local bool is_driver = false;

}  // namespace

bool Schedule::on_driver_thread() { return is_driver; }

std::string Work::text() const { return name + " in " + stream + " (" + site.text() + ")"; }

Schedule::Schedule(Gpu& gpu) : gpu_(gpu), random_(gpu.options.seed), times_(1, 0) {
  last_call_ = std::chrono::steady_clock::now();
}

Schedule::~Schedule() { CHECK(!driver_.joinable(), "stop() was not called"); }

Timeline Schedule::new_timeline() {
  times_.push_back(0);
  return static_cast<Timeline>(times_.size() - 1);
}

OperationPtr Schedule::add(std::shared_ptr<const Work> work, Timeline timeline,
                           std::vector<OperationPtr> after) {
  auto operation = std::make_shared<Operation>();
  operation->work = std::move(work);
  operation->number = next_number_++;
  operation->timeline = timeline;
  operation->after = std::move(after);
  operation->host = gpu_.host;
  if (operation->work->join) {
    operation->collective = operation->work->join(gpu_, operation);
    if (operation->collective) operation->collective->parts.push_back(operation);
  }
  if (operation->work->prepare) operation->work->prepare(gpu_, *operation);
  pending_.push_back(operation);
  if (operation->work->host || gpu_.options.idle_ms > 0) start_driver();
  if (gpu_.options.order == Order::kEager) drain();
  gpu_.changed.notify_all();
  return operation;
}

void Schedule::drain() {
  while (step({pending_.begin(), pending_.end()})) {
  }
}

void Schedule::drop_out(Operation& operation) {
  if (!operation.collective) return;
  std::erase_if(operation.collective->parts, [&](const auto& p) { return p.get() == &operation; });
  operation.collective = nullptr;
  gpu_.changed.notify_all();
}

bool Schedule::broken(const Operation& operation) const {
  return gpu_.devices[static_cast<size_t>(operation.work->device)].error != cudaSuccess;
}

bool Schedule::ready(const Operation& operation) const {
  if (operation.state != Operation::State::kPending) return false;
  // A collective that a rank has left is over, whatever it hung on.
  const auto hangs = [&](const Operation& o) {
    const bool left = o.work->kind == WorkKind::kCollective && !o.collective;
    return o.work->hangs && !gpu_.let_go && !left;
  };
  const auto free = [&](const Operation& o) {
    return !hangs(o) &&
           std::all_of(o.after.begin(), o.after.end(), [](const auto& a) { return a->done(); });
  };
  const Collective* all = operation.collective.get();
  if (all == nullptr) return free(operation);
  // With a rank whose device is broken, the others wait for ever, or until they leave.
  return all->parts.size() == all->ranks &&
         std::all_of(all->parts.begin(), all->parts.end(),
                     [&](const auto& part) { return free(*part) && !broken(*part); });
}

std::vector<OperationPtr> Schedule::needed(const OperationPtr& target) const {
  std::vector<OperationPtr> all, open{target};
  std::unordered_set<const Operation*> seen{target.get()};
  const auto visit = [&](const OperationPtr& operation) {
    if (!operation->done() && seen.insert(operation.get()).second) open.push_back(operation);
  };
  while (!open.empty()) {
    const OperationPtr operation = open.back();
    open.pop_back();
    if (operation->done()) continue;
    all.push_back(operation);
    for (const auto& before : operation->after) visit(before);
    if (operation->collective) {
      for (const auto& part : operation->collective->parts) visit(part);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a->number < b->number; });
  return all;
}

bool Schedule::step(const std::vector<OperationPtr>& among) {
  std::vector<OperationPtr> can;
  for (const auto& operation : among) {
    if (!operation->work->host && ready(*operation)) can.push_back(operation);
  }
  if (can.empty()) return false;
  size_t choice = 0;
  if (gpu_.options.order == Order::kLatest) choice = can.size() - 1;
  if (gpu_.options.order == Order::kRandom) choice = random_() % can.size();
  run(can[choice]);
  return true;
}

void Schedule::begin(Operation& operation) {
  operation.state = Operation::State::kRunning;
  operation.known = operation.early = operation.host;
  for (const auto& before : operation.after) {
    operation.known.join(before->clock);
    // Where kernels overlap, the later one starts when all that came before the other is over.
    const bool overlaps = operation.work->overlaps && before->timeline == operation.timeline &&
                          before->work->kind == WorkKind::kKernel;
    operation.early.join(overlaps ? before->known : before->clock);
  }
}

void Schedule::finish(Operation& operation) {
  operation.state = Operation::State::kDone;
  operation.after.clear();
  operation.collective = nullptr;
  operation.staged = {};
  std::erase_if(pending_, [&](const auto& p) { return p.get() == &operation; });
  gpu_.changed.notify_all();
}

void Schedule::run(const OperationPtr& operation) {
  // Kept alive, and from being changed, while its parts end.
  const std::shared_ptr<Collective> together = operation->collective;
  std::vector<OperationPtr> parts{operation};
  if (together) parts = together->parts;
  Clock all;
  for (const auto& part : parts) {
    begin(*part);
    all.join(part->known);
  }
  for (const auto& part : parts) {
    part->known = all;
    part->time = ++times_[part->timeline];
    part->clock = all;
    part->clock.set(part->timeline, part->time);
  }
  if (together) {
    together->run(gpu_);
  } else if (operation->work->run && !broken(*operation)) {
    operation->work->run(gpu_, *operation);
  }
  if (together) {  // what one rank did before, all others' later work comes after
    Clock after;
    for (const auto& part : parts) after.join(part->clock);
    for (const auto& part : parts) part->clock = after;
  }
  for (const auto& part : parts) finish(*part);
}

void Schedule::at_call() {
  last_call_ = std::chrono::steady_clock::now();
  if (gpu_.options.order == Order::kEager) drain();
  if (gpu_.options.order != Order::kRandom) return;
  while (random_() % 3 == 0 && step({pending_.begin(), pending_.end()})) {
  }
}

void Schedule::nudge(const OperationPtr& target) {
  const auto all = needed(target);
  for (const auto& operation : all) operation->wanted = true;
  step(all);
  gpu_.changed.notify_all();
}

// The analysis does not see that the caller's Call holds the lock.
void Schedule::wait_for(const OperationPtr& target) NO_THREAD_SAFETY_ANALYSIS {
  while (!target->done() && !broken(*target)) {
    const auto all = needed(target);
    for (const auto& operation : all) operation->wanted = true;
    if (gpu_.options.order == Order::kRandom && random_() % 4 == 0 &&
        step({pending_.begin(), pending_.end()})) {
      continue;
    }
    if (step(all)) continue;
    gpu_.changed.notify_all();  // a host function may be wanted now
    gpu_.changed.wait(gpu_.mutex);
  }
}

void Schedule::start_driver() {
  if (driver_.joinable() || stopping_) return;
  driver_ = std::thread([this] { drive(); });
}

void Schedule::drive() NO_THREAD_SAFETY_ANALYSIS {
  is_driver = true;
  const MutexLock lock(gpu_.mutex);
  while (!stopping_) {
    const std::chrono::milliseconds idle(gpu_.options.idle_ms);
    const bool silence = idle.count() > 0 && std::chrono::steady_clock::now() - last_call_ >= idle;
    const auto host_function = std::find_if(pending_.begin(), pending_.end(), [&](const auto& p) {
      return p->work->host && ready(*p) &&
             (silence || p->wanted || gpu_.options.order != Order::kLatest);
    });
    if (host_function != pending_.end()) {
      const OperationPtr operation = *host_function;
      begin(*operation);
      operation->time = ++times_[operation->timeline];
      operation->clock = operation->known;
      operation->clock.set(operation->timeline, operation->time);
      gpu_.mutex.unlock();
      operation->work->host();
      gpu_.mutex.lock();
      finish(*operation);
    } else if (silence && step({pending_.begin(), pending_.end()})) {
    } else if (idle.count() > 0 && !pending_.empty()) {
      gpu_.changed.wait_until(gpu_.mutex, std::chrono::steady_clock::now() + idle);
    } else {
      gpu_.changed.wait(gpu_.mutex);
    }
  }
}

void Schedule::stop() NO_THREAD_SAFETY_ANALYSIS {
  {
    const MutexLock lock(gpu_.mutex);
    stopping_ = true;
    pending_.clear();
    gpu_.changed.notify_all();
  }
  if (driver_.joinable()) driver_.join();
}

}  // namespace deltad::emulated_gpu
