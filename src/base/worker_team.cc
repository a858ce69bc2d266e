// WorkerTeam: fork and join by a counter that the workers watch. Waiting spins first, because a
// step of the model forks hundreds of times with microseconds between; then it sleeps (between
// runs) or yields (inside a run, where the others are at work).
#include "base/worker_team.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/spin.h"
#include "base/spin_wait.h"

namespace deltad {
namespace {

// The process's cores, read once: a thread that has been pinned would see only its own.
const std::vector<int>& process_cores() {
  static const std::vector<int> cores = [] {
    std::vector<int> found;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
      for (int i = 0; i < CPU_SETSIZE; ++i) {
        if (CPU_ISSET(i, &set)) found.push_back(i);
      }
    }
    if (found.empty()) found.push_back(0);
    return found;
  }();
  return cores;
}

// Binding is for speed only: where the system refuses it, the thread runs where it may.
void bind_this_thread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

struct WorkerTeam::State {
  explicit State(int threads)
      : size(threads),
        spins(static_cast<size_t>(threads) <= process_cores().size()),
        begun(spins) {}

  const int size;
  const bool spins;           // not where workers share cores: spinning would keep others off
  bool pinned = false;        // workers 1… are; worker 0 follows in the first run
  bool caller_bound = false;  // worker 0 has been bound; caller_mask is what it had
  pthread_t caller{};
  cpu_set_t caller_mask{};
  std::vector<std::thread> threads;

  // Written by the caller before it raises `epoch`, read by workers after they have seen that.
  void (*work)(void* context, int worker) = nullptr;  // null: end
  void* context = nullptr;

  alignas(64) std::atomic<uint32_t> epoch{0};   // runs begun
  alignas(64) std::atomic<int> busy{0};         // workers 1… that have not returned from this run
  alignas(64) std::atomic<int> arrived{0};      // at the barrier
  alignas(64) std::atomic<uint32_t> passed{0};  // barriers that all have reached

  alignas(64) SpinWait begun;  // for epoch

  void begin_run() {
    epoch.fetch_add(1);
    begun.notify();
  }

  void await_epoch_after(uint32_t seen) {
    begun.await([&] { return epoch.load() != seen; }, TimePoint::max());
  }

  // Inside a run: the others are working, so sleeping would only add latency.
  template <typename Done>
  void await_others(const Done& done) const {
    if (spins && spin(done)) return;
    while (!done()) std::this_thread::yield();
  }

  void worker_main(int worker) {
    for (uint32_t seen = 0;; ++seen) {
      await_epoch_after(seen);
      if (work == nullptr) return;
      work(context, worker);
      busy.fetch_sub(1, std::memory_order_release);
    }
  }
};

WorkerTeam::WorkerTeam(int threads, bool pin) : state_(std::make_unique<State>(threads)) {
  CHECK(threads >= 1, "a team has at least its caller");
  state_->pinned = pin && state_->spins && threads > 1;
  for (int worker = 1; worker < threads; ++worker) {
    state_->threads.emplace_back([state = state_.get(), worker] {
      if (state->pinned) bind_this_thread(process_cores()[static_cast<size_t>(worker)]);
      state->worker_main(worker);
    });
  }
}

WorkerTeam::~WorkerTeam() {
  state_->work = nullptr;
  state_->begin_run();
  for (std::thread& thread : state_->threads) thread.join();
  if (state_->caller_bound && pthread_equal(state_->caller, pthread_self())) {
    (void)pthread_setaffinity_np(pthread_self(), sizeof state_->caller_mask, &state_->caller_mask);
  }
}

int WorkerTeam::size() const { return state_->size; }

int WorkerTeam::cores() { return static_cast<int>(process_cores().size()); }

void WorkerTeam::run_erased(void (*work)(void* context, int worker), void* context) {
  State& state = *state_;
  if (state.size == 1) {
    work(context, 0);
    return;
  }
  if (state.pinned && !state.caller_bound) {
    state.caller_bound = true;
    state.caller = pthread_self();
    (void)pthread_getaffinity_np(state.caller, sizeof state.caller_mask, &state.caller_mask);
    bind_this_thread(process_cores().front());
  }
  state.work = work;
  state.context = context;
  state.busy.store(state.size - 1, std::memory_order_relaxed);
  state.begin_run();
  work(context, 0);
  state.await_others([&] { return state.busy.load(std::memory_order_acquire) == 0; });
}

uint32_t WorkerTeam::arrive() {
  State& state = *state_;
  const uint32_t before = state.passed.load(std::memory_order_relaxed);
  if (state.arrived.fetch_add(1, std::memory_order_acq_rel) == state.size - 1) {
    state.arrived.store(0, std::memory_order_relaxed);
    state.passed.store(before + 1, std::memory_order_release);
  }
  return before;
}

void WorkerTeam::await(uint32_t arrival) const {
  const State& state = *state_;
  const auto passed = [&] { return state.passed.load(std::memory_order_acquire) != arrival; };
  if (!passed()) state.await_others(passed);
}

}  // namespace deltad
