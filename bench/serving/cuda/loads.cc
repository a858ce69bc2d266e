#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "bench/serving/cuda/serve.h"
#include "bench/synthetic_model.h"
#include "io/bulk_reader.h"

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

// Loads read past the page cache what is not in it, and leave it so.
Status bring_into_cache(const FileReader& file) {
  std::vector<uint8_t> bytes(size_t{4} << 20);
  const auto piece = static_cast<int64_t>(bytes.size());
  for (int64_t at = 0; at < file.size(); at += piece)
    RETURN_IF_ERROR(file.read(at, std::min(piece, file.size() - at), bytes.data()));
  return {};
}

// Where the next load reads from, by what a load looks at itself.
const char* source(const FileReader& file, bool cold) {
  if (BulkReader(file, {}).direct()) return "from disk";
  return cold ? "from memory (tmpfs), or without O_DIRECT" : "from the page cache";
}

Status measure(const SyntheticModel& model, const std::string& path, int rounds) {
  RETURN_IF_ERROR(write_synthetic_variant(path, model.table));
  ASSIGN_OR_RETURN(const std::shared_ptr<FileReader> file, FileReader::open(path));
  const auto bytes = static_cast<double>(file->size());
  std::printf("| load of a variant | MB | s | GB/s |\n|---|---|---|---|\n");
  for (const bool cold : {true, false})
    for (int round = 0; round < rounds; ++round) {
      RETURN_IF_ERROR(cold ? drop_from_cache(path) : bring_into_cache(*file));
      const char* const from = source(*file, cold);
      ASSIGN_OR_RETURN(const double took, load_once(model, path));
      std::printf("| %s, %d | %.0f | %.3f | %.2f |\n", from, round + 1, bytes / 1e6, took,
                  bytes / took / 1e9);
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
