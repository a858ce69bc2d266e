#include "parallel/each_rank.h"

#include <fmt/core.h>

#include <exception>
#include <thread>
#include <vector>

namespace deltad {
namespace {

// What a rank throws, memory that cannot be had above all, fails it, and not the process.
Status guarded(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const std::exception& e) {
    return internal_error(fmt::format("its work has thrown: {}", e.what()));
  }
}

}  // namespace

Status each_rank(int ranks, const std::function<Status(int rank)>& work) {
  std::vector<Status> ends(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;  // joined at the end of the block
    for (int r = 1; r < ranks; ++r) {
      const Status started = guarded([&]() -> Status {
        threads.emplace_back(
            [&, r] { ends[static_cast<size_t>(r)] = guarded([&] { return work(r); }); });
        return {};
      });
      if (!started.ok()) ends[static_cast<size_t>(r)] = started;  // it has no thread
    }
    ends[0] = guarded([&] { return work(0); });
  }
  for (int r = 0; r < ranks; ++r)
    RETURN_IF_ERROR(ends[static_cast<size_t>(r)].in(fmt::format("rank {} of {}", r, ranks)));
  return {};
}

}  // namespace deltad
