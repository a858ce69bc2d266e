// What a thread asks of the operating system's scheduler.
#pragma once

namespace deltad {

// How soon the calling thread runs after it wakes, on cores that kernel workers keep busy: for
// threads with microseconds of work at a time. For speed only; nothing fails.
enum class Promptness {
  kRealTime,    // before all ordinary threads, of any process
  kShortSlice,  // before threads that have their whole time slice left, while it is within its
                // share
  kOrdinary,    // as all others: the system knows no such wish (Linux before 6.12)
};

// Asks for the best of them; real time only if wanted, and it needs CAP_SYS_NICE or RLIMIT_RTPRIO.
// Returns what was granted.
Promptness run_promptly(bool real_time);

// Lets the calling thread, and those that it starts, run only where others leave time: for work
// that nobody waits for. For good: going back needs a permission. Nothing fails.
void run_behind_others();

}  // namespace deltad
