// The kernel threads: a fixed team that runs one function on every worker at once (fork and join).
// Owned by the backend. The caller is worker 0; workers 1… are threads of the team, pinned to
// cores. Between two runs a worker spins at most 50 µs, then sleeps, so an idle daemon uses no CPU.
// run() is called by one thread at a time (the engine's thread); barrier() only inside run().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace deltad {

class WorkerTeam {
 public:
  // threads ≥ 1, counting the caller. pin: bind workers 1… to cores of the process's affinity mask
  // (never the first core, which the thread that calls run() takes in the first run(), and gives
  // back if it also destroys the team). A team larger than the mask is not pinned.
  explicit WorkerTeam(int threads, bool pin = true);
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int size() const;
  // Cores of the process's affinity mask as it was before any team pinned a thread.
  static int cores();

  // Calls work(worker) once on each worker, 0 ≤ worker < size(), and returns when all have
  // returned. work is called by reference and must not throw; no allocation.
  template <typename F>
  void run(F&& work) {
    run_erased([](void* context,
                  int worker) { (*static_cast<std::remove_reference_t<F>*>(context))(worker); },
               const_cast<void*>(static_cast<const void*>(&work)));
  }
  // Calls work(worker, i) once for each 0 ≤ i < n: who is done takes the next. Otherwise as run().
  // fork: false does all on the caller, where it is too little to share.
  template <typename F>
  void take_turns(int64_t n, bool fork, F&& work) {
    if (!fork || n <= 1 || size() == 1) {
      for (int64_t i = 0; i < n; ++i) work(0, i);
      return;
    }
    std::atomic<int64_t> next{0};
    run([&](int worker) {
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < n;
           i = next.fetch_add(1, std::memory_order_relaxed))
        work(worker, i);
    });
  }
  // Inside run(): returns when every worker of the team has called it.
  void barrier() { await(arrive()); }
  // barrier() in two halves, for what a worker can do meanwhile. arrive() says that this worker is
  // here; await(), given what arrive() returned, returns when all are, and at once if asked again.
  // A worker awaits, or returns from the run, before it arrives once more.
  uint32_t arrive();
  void await(uint32_t arrival) const;

 private:
  void run_erased(void (*work)(void* context, int worker), void* context);
  struct State;
  std::unique_ptr<State> state_;
};

// The half-open share [begin, end) of n items, in units of `unit`, that belongs to worker of size.
struct Share {
  int64_t begin, end;
};
inline Share share_of(int64_t n, int64_t unit, int worker, int size) {
  const int64_t units = (n + unit - 1) / unit;
  const int64_t first = units * worker / size, last = units * (worker + 1) / size;
  return {first * unit < n ? first * unit : n, last * unit < n ? last * unit : n};
}

}  // namespace deltad
