// Linux shares a core by deadlines: a waking thread interrupts the running one only if its own time
// slice is the shorter. The default is about 3 ms for all; a thread may ask for less without any
// privilege (sched_setattr, sched_runtime, from 0.1 ms). But one that has used its slice then waits
// for the others' whole ones, which only the real-time policies are free of.
#include "base/scheduling.h"

#include <cstdint>

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace deltad {
namespace {

// The kernel's struct sched_attr in its first version (48 bytes); not every libc has it.
struct SchedulingAttributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

Promptness run_promptly(bool real_time) {
#if defined(__linux__)
  SchedulingAttributes wish{};
  wish.size = sizeof wish;
  if (real_time) {
    wish.policy = SCHED_RR;
    wish.priority = 1;
    wish.flags = 1;  // SCHED_FLAG_RESET_ON_FORK: not for what this thread starts
    if (syscall(SYS_sched_setattr, 0, &wish, 0) == 0) return Promptness::kRealTime;
  }
  wish.policy = SCHED_OTHER;
  wish.priority = 0;
  wish.flags = 0;
  wish.nice = getpriority(PRIO_PROCESS, 0);  // as it is
  wish.runtime = 500'000;                    // ns
  if (syscall(SYS_sched_setattr, 0, &wish, 0) == 0) return Promptness::kShortSlice;
#else
  (void)real_time;
#endif
  return Promptness::kOrdinary;
}

void run_behind_others() {
#if defined(__linux__)
  SchedulingAttributes wish{};
  wish.size = sizeof wish;
  wish.policy = SCHED_BATCH;  // waking, it interrupts nobody
  wish.nice = 19;
  (void)syscall(SYS_sched_setattr, 0, &wish, 0);
#endif
}

}  // namespace deltad
