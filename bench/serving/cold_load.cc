// How fast a variant is loaded from a cold disk, against what the disk gives when it is only read:
// one after the other as dd does, through the page cache and past it (bs=4M, iflag=direct), and
// with four reads in flight as fio --iodepth=4. Makes a synthetic variant file of a model with 18
// blocks of an 8-billion-parameter model's shapes, checks every loaded value against the file, then
// measures all of them in turns, each with the file's pages out of the page cache. Beside each rate
// stands the processor time that it took: where that, over all cores, is more than the disk's, it
// is what bounds the load.
//   bench_cold_load [--folder DIR] [--layers N] [--threads N] [--rounds N] [--rate
//   BYTES_PER_SECOND]
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/cpu_variant_weights.h"
#include "bench/synthetic_model.h"
#include "delta/loader.h"
#include "io/bulk_reader.h"
#include "kernels/cpu/layout.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

constexpr int64_t kReadBytes = int64_t{4} << 20;
constexpr int kReadsInFlight = 4;

struct Options {
  std::string folder = ".";
  int64_t layers = 18;
  int threads = kReadThreads;
  int rounds = 7;
  int64_t rate = 0;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "bench_cold_load: %s\n", why.c_str());
  std::exit(1);
}
void require(const Status& status) {
  if (!status.ok()) stop(status.message());
}

// Every byte of signs, every α and every norm, straight from the layout's definition.
void check_loaded(const std::string& path, const WeightTable& table, const Variant& variant) {
  auto delta = DeltaFile::open(path);
  require(delta.status());
  const auto& weights = static_cast<const CpuVariantWeights&>(*variant.weights);
  const auto row_of = [](const WeightSpec& spec, int part, int64_t r) {
    const auto parts = static_cast<int64_t>(spec.parts.size());
    return spec.interleaved ? (r / 16 * parts + part) * 16 + r % 16 : spec.part_offset(part) + r;
  };
  for (const auto& [name, entry] : delta->file().tensors()) {
    const TensorPlace place = place_of_tensor(name);
    const WeightTable::Place& at = table.by_name.at(place.weight);
    const WeightSpec& spec = table.specs[static_cast<size_t>(at.weight)];
    const int64_t rows = spec.parts[static_cast<size_t>(at.part)].rows;
    const CpuWeightDelta& found = weights.delta(at.weight);
    std::vector<uint8_t> bytes(static_cast<size_t>(entry.bytes));
    require(delta->file().read(entry, 0, entry.bytes, bytes.data()));
    bool same = true;
    if (place.role == TensorRole::kSign) {
      const int64_t row_bytes = spec.columns / 8, tile_words = spec.columns / 4;
      const auto* words = found.levels[0].bits.as<uint64_t>();
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t row = row_of(spec, at.part, r), shift = row % 16 * 4;
        const uint64_t* tile = words + row / 16 * tile_words;
        for (int64_t j = 0; j < row_bytes; ++j) {
          const uint64_t byte = (tile[2 * j] >> shift & 0xf) | (tile[2 * j + 1] >> shift & 0xf)
                                                                   << 4;
          same &= byte == bytes[static_cast<size_t>(r * row_bytes + j)];
        }
      }
    } else if (place.role == TensorRole::kAlpha) {
      const auto* alpha = reinterpret_cast<const float*>(bytes.data());
      for (int64_t r = 0; r < rows; ++r)
        same &= found.levels[0].alpha.as<float>()[row_of(spec, at.part, r)] == alpha[r];
    } else {
      const auto* values = reinterpret_cast<const uint16_t*>(bytes.data());
      for (int64_t r = 0; r < rows; ++r)
        same &= found.dense->storage.as<float>()[r] == bf16_to_f32(values[r]);
    }
    if (!same) stop("tensor " + name + " was loaded wrong");
  }
}

// Reads all of the file as dd or fio would, in pieces of 4 MiB.
void read_only(const std::string& path, int64_t bytes, bool direct, int in_flight) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
  if (fd < 0) stop(path + " cannot be opened for direct reading");
  std::atomic<int64_t> next{0}, read{0};
  const auto work = [&] {
    auto staging = BulkReader::staging(kReadBytes);  // huge pages, which direct reads gain from
    require(staging.status());
    void* memory = staging->at({0, kReadBytes}).data();
    for (int64_t at = next.fetch_add(kReadBytes); at < bytes; at = next.fetch_add(kReadBytes)) {
      const ssize_t got = pread(fd, memory, kReadBytes, at);
      if (got < 0) stop(path + " cannot be read");
      read += got;
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < in_flight; ++i) others.emplace_back(work);
  work();
  for (std::thread& thread : others) thread.join();
  ::close(fd);
  if (read != bytes) stop(path + " was not read whole");
}

// Memory that a virtual machine has not used for a while costs its host a fault a page, many times
// what the disk costs. That is not what is measured here: as much as a load takes is touched
// before.
void warm_memory(size_t bytes) {
  ArenaPlan plan;
  plan.add(bytes);
  auto arena = Arena::make(plan);
  require(arena.status());
  require(arena->populate());
}

struct Way {
  const char* name;
  std::function<void()> run;
  std::vector<double> rates;         // MB/s
  std::vector<double> user, system;  // processor time, ms
};

double milliseconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) / 1e3;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Milliseconds from the flag to the end of loads that are cancelled when half of the time is over
// that they took at 2 GB/s; those that were faster do not count.
std::vector<double> cancel_loads(const Options& options, int64_t bytes, VariantLoadOptions& load,
                                 const std::function<Status()>& load_once) {
  std::vector<double> took;
  for (int round = 0; round < options.rounds; ++round) {
    std::atomic<bool> cancelled{false};
    std::chrono::steady_clock::time_point at;
    load.cancelled = &cancelled;
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::duration<double>(static_cast<double>(bytes) / 4e9));
      at = std::chrono::steady_clock::now();
      cancelled = true;
    });
    const Status status = load_once();
    const auto end = std::chrono::steady_clock::now();
    canceller.join();
    load.cancelled = nullptr;
    if (status.code() == Code::kCancelled)
      took.push_back(std::chrono::duration<double, std::milli>(end - at).count());
  }
  return took;
}

int run(const Options& options) {
  const WeightTable table = make_weight_table(bench::synthetic_8b(options.layers, 256));
  auto made = make_cpu_backend({1, false, ""});
  require(made.status());
  Backend& backend = **made;
  require(backend.declare_weights(table.specs));  // never written to: takes no memory

  const std::string path = options.folder + "/synthetic.delta.safetensors";
  require(bench::write_synthetic_variant(path, table));
  struct stat info;
  if (stat(path.c_str(), &info) != 0) stop(path + " is gone");
  const int64_t bytes = info.st_size;

  VariantLoadOptions load;
  load.architecture = "LlamaForCausalLM";
  load.threads = options.threads;
  std::unique_ptr<RateLimit> rate;
  if (options.rate > 0) rate = std::make_unique<RateLimit>(options.rate);
  load.rate = rate.get();
  const auto load_once = [&] {
    auto variant = load_variant("synthetic", path, table, backend, load);
    require(variant.status());
    return *variant;
  };
  require(bench::drop_from_cache(path));
  size_t resident = 0;
  {
    const VariantRef variant = load_once();
    check_loaded(path, table, *variant);
    resident = variant->bytes;
    const auto planned = measure_variant(path, table, backend, load);
    if (!planned.ok() || static_cast<size_t>(planned->bytes) != resident)
      stop("the header promised another size");
  }

  std::vector<Way> ways = {
      {"read, page cache", [&] { read_only(path, bytes, false, 1); }, {}, {}, {}},
      {"read, direct", [&] { read_only(path, bytes, true, 1); }, {}, {}, {}},
      {"read, direct, 4 in flight",
       [&] { read_only(path, bytes, true, kReadsInFlight); },
       {},
       {},
       {}},
      {"load_variant", [&] { load_once(); }, {}, {}, {}}};
  for (int round = 0; round < options.rounds; ++round)
    for (Way& way : ways) {
      require(bench::drop_from_cache(path));
      warm_memory(resident);
      rusage before, after;
      getrusage(RUSAGE_SELF, &before);
      const auto start = std::chrono::steady_clock::now();
      way.run();
      const double took =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      getrusage(RUSAGE_SELF, &after);
      way.user.push_back(milliseconds(after.ru_utime) - milliseconds(before.ru_utime));
      way.system.push_back(milliseconds(after.ru_stime) - milliseconds(before.ru_stime));
      way.rates.push_back(static_cast<double>(bytes) / took / 1e6);
    }
  const std::vector<double> cancelling = cancel_loads(options, bytes, load, [&] {
    require(bench::drop_from_cache(path));
    return load_variant("synthetic", path, table, backend, load).status();
  });
  ::unlink(path.c_str());

  std::printf("%.0f MB on disk, %.0f MB resident; every value as in the file; %d load threads\n",
              static_cast<double>(bytes) / 1e6, static_cast<double>(resident) / 1e6,
              options.threads);
  std::printf("medians of %d, in turns, cold page cache\n\n", options.rounds);
  const double loaded = median(ways.back().rates);
  for (const Way& way : ways) {
    const auto [low, high] = std::minmax_element(way.rates.begin(), way.rates.end());
    std::printf("%-28s %7.0f MB/s  (%.0f to %.0f), processor %.0f ms user and %.0f system",
                way.name, median(way.rates), *low, *high, median(way.user), median(way.system));
    if (&way != &ways.back()) std::printf("   load: %5.1f %%", 100 * loaded / median(way.rates));
    std::printf("\n");
  }
  if (!cancelling.empty())
    std::printf("\ncancelled in its middle, a load ends after %.1f ms (at most %.1f)\n",
                median(cancelling), *std::max_element(cancelling.begin(), cancelling.end()));
  return 0;
}

int64_t number(const char* text, const std::string& flag) {
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1) stop(flag + ": expected a number above 0");
  return value;
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) {
  deltad::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    if (i + 1 == argc) deltad::stop(flag + ": expected a value");
    if (flag == "--folder") {
      options.folder = argv[i + 1];
      continue;
    }
    const int64_t value = deltad::number(argv[i + 1], flag);
    if (flag == "--layers")
      options.layers = value;
    else if (flag == "--threads")
      options.threads = static_cast<int>(value);
    else if (flag == "--rounds")
      options.rounds = static_cast<int>(value);
    else if (flag == "--rate")
      options.rate = value;
    else
      deltad::stop(flag + ": unknown; see the head of bench/serving/cold_load.cc");
  }
  return deltad::run(options);
}
