// Runs a list of independent pieces of work on a few threads that live only for that: reading,
// compressing and writing the tensors of a variant. Kernel threads (base/worker_team) are not for
// this: these may block on a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"

namespace deltad {

// Calls work(i) once for each 0 ≤ i < n, in ascending order of start, on at most `threads` threads
// of which the caller is one. After the first error no further piece is started; that error is
// returned. Exceptions become internal errors.
Status run_work_list(int64_t n, int threads, const std::function<Status(int64_t)>& work);

// The same for work that was dealt out beforehand (io/read_shares): each share's pieces run on
// threads of its own, one or more of the `threads`.
Status run_work_shares(const std::vector<int64_t>& bounds, int threads,
                       const std::function<Status(int64_t)>& work);

}  // namespace deltad
