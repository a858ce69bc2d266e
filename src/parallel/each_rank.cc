#include "parallel/each_rank.h"

#include <fmt/format.h>

#include <thread>
#include <vector>

namespace deltad {

Status each_rank(int ranks, const std::function<Status(int rank)>& work) {
  std::vector<Status> ends(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 1; r < ranks; ++r)
    threads.emplace_back([&, r] { ends[static_cast<size_t>(r)] = work(r); });
  ends[0] = work(0);
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < ranks; ++r)
    RETURN_IF_ERROR(ends[static_cast<size_t>(r)].in(fmt::format("rank {} of {}", r, ranks)));
  return {};
}

}  // namespace deltad
