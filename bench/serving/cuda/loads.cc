#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/clock.h"
#include "bench/serving/cuda/serve.h"
#include "bench/synthetic_model.h"

namespace deltad::bench {
namespace {

// Seconds of one load.
Result<double> load_once(const SyntheticModel& model, const std::string& path) {
  VariantLoadOptions options;
  options.architecture = model.config.architecture;
  const TimePoint start = Clock::real().now();
  ASSIGN_OR_RETURN(const VariantRef variant,
                   load_variant("synthetic", path, model.table, *model.backend, options));
  return seconds(Clock::real().now() - start);
}

Status measure(const SyntheticModel& model, const std::string& path, int rounds) {
  RETURN_IF_ERROR(write_synthetic_variant(path, model.table));
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return internal_error(path + " is gone");
  std::printf("| load of a variant | MB | s | GB/s |\n|---|---|---|---|\n");
  for (const bool cold : {true, false})
    for (int round = 0; round < rounds; ++round) {
      if (cold) RETURN_IF_ERROR(drop_from_cache(path));
      ASSIGN_OR_RETURN(const double took, load_once(model, path));
      std::printf("| %s, %d | %.0f | %.3f | %.2f |\n", cold ? "from disk" : "from the page cache",
                  round + 1, static_cast<double>(info.st_size) / 1e6, took,
                  static_cast<double>(info.st_size) / took / 1e9);
      std::fflush(stdout);
    }
  return {};
}

}  // namespace

Status bench_loads(const SyntheticModel& model, const std::string& folder, bool small) {
  const std::string path = folder + "/synthetic.delta.safetensors";
  const Status status = measure(model, path, small ? 1 : 3);
  ::unlink(path.c_str());
  return status;
}

}  // namespace deltad::bench
