// What a thread asks of the operating system's scheduler.
#pragma once

namespace deltad {

// Lets the calling thread run soon after it wakes, before threads that compute without pause: for
// threads with microseconds of work on cores that kernel workers keep busy. For speed only: where
// the system knows no such wish (Linux before 6.12), nothing changes.
void run_soon_after_waking();

}  // namespace deltad
