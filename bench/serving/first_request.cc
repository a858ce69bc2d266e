// What the first request after a load waits for: the time to its first token against the load's own
// time plus the time to the first token of a request like it that finds the variant in memory. The
// real engine and router; between two requests the variant is evicted. Every answer of a first
// request must be that of the same request when nothing has to be loaded, and every load must have
// been one. Also counted: the page faults between the end of the load and the first token, against
// those of a request that finds the variant in memory.
//   bench_first_request BASE VARIANT… [--rounds N] [--prompt TOKENS]
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "bench/random.h"
#include "delta/variant_path.h"
#include "engine/base_model.h"
#include "engine/engine.h"
#include "router/router.h"

namespace deltad {
namespace {

constexpr int kWarm = 3;  // requests that find the variant in memory, for each that does not
constexpr int32_t kTokens = 8;

struct Options {
  std::string base;
  std::vector<std::string> variants;
  int rounds = 50;
  int prompt = 128;
};

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "bench_first_request: %s\n", why.c_str());
  std::exit(1);
}
void require(const Status& status) {
  if (!status.ok()) stop(status.message());
}

double millis(Duration d) { return seconds(d) * 1e3; }
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// Remembers how many page faults there had been when a load ended.
class WatchedLoader final : public VariantLoader {
 public:
  WatchedLoader(std::unique_ptr<VariantLoader> loader, std::atomic<int64_t>& faults)
      : loader_(std::move(loader)), faults_(faults) {}
  Result<VariantSize> measure(const std::string& path) override { return loader_->measure(path); }
  Result<VariantRef> load(const std::string& name, const std::string& path, Tier tier,
                          int64_t max_bytes, const std::atomic<bool>& cancelled) override {
    auto loaded = loader_->load(name, path, tier, max_bytes, cancelled);
    faults_ = page_faults();
    return loaded;
  }
  Result<VariantRef> copy(const VariantRef& variant, Tier to,
                          const std::atomic<bool>& cancelled) override {
    return loader_->copy(variant, to, cancelled);
  }

 private:
  const std::unique_ptr<VariantLoader> loader_;
  std::atomic<int64_t>& faults_;
};

struct Answer {
  std::vector<int32_t> tokens;
  double first_token = 0;  // milliseconds from before submit
  double faults = 0;       // from before submit
  int64_t faults_then = 0;
};

// One request at a time: its answer, when it is whole.
class Client {
 public:
  explicit Client(Router& router) : router_(router) {}

  Answer ask(const std::string& model, const std::vector<int32_t>& prompt) {
    Request request;
    request.prompt = prompt;
    request.max_tokens = kTokens;
    request.sampling.temperature = 0;
    request.on_event = [this](const TokenEvent& event) { take(event); };
    tokens_.clear();
    ended_ = false;
    const int64_t faults = page_faults();
    const TimePoint start = Clock::real().now();
    const auto handle = router_.resolve(model);
    require(handle.status());
    require(router_.submit(*handle, std::move(request)).status());
    MutexLock lock(mutex_);
    while (!ended_) changed_.wait(mutex_);
    require(status_);
    return {tokens_, millis(first_ - start), static_cast<double>(faults_ - faults), faults_};
  }

 private:
  void take(const TokenEvent& event) {
    MutexLock lock(mutex_);
    if (event.kind == TokenEvent::Kind::kToken) {
      if (tokens_.empty()) {
        first_ = Clock::real().now();
        faults_ = page_faults();
      }
      tokens_.push_back(event.token);
    } else if (event.kind == TokenEvent::Kind::kFinished) {
      status_ = event.status;
      ended_ = true;
      changed_.notify_all();
    }
  }

  Router& router_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<int32_t> tokens_;  // with the others below: by turns, under the mutex where both meet
  TimePoint first_{};
  int64_t faults_ = 0;  // at the first token
  bool ended_ = false;
  Status status_;
};

VariantInfo info(const Router& router, const std::string& name) {
  for (const VariantInfo& variant : router.variants())
    if (variant.name == name) return variant;
  stop("variant " + name + " is gone");
}

// The last handle of a request is dropped a moment after its last event.
void evict(Router& router, const std::string& name) {
  while (!router.evict(name).ok()) std::this_thread::yield();
  while (router.stats().device.used > 0) std::this_thread::yield();
}

struct Figures {
  std::vector<double> cold, load, warm, difference, cold_faults, warm_faults;
  void print(const char* what) const {
    std::vector<double> rest;
    for (const double d : difference) rest.push_back(std::abs(d));
    std::sort(rest.begin(), rest.end());
    std::printf(
        "%-34s %3zu  TTFT %7.2f  load %7.2f  warm TTFT %7.2f  difference %6.2f ms "
        "(p90 of its size %.2f); page faults after the load %.0f, warm %.0f\n",
        what, cold.size(), median(cold), median(load), median(warm), median(difference),
        rest[rest.size() * 9 / 10], median(cold_faults), median(warm_faults));
  }
};

int run(const Options& options) {
  auto base = load_base_model(options.base, CpuBackendOptions(), nullptr);
  require(base.status());
  auto engine = Engine::make((*base)->config(), (*base)->table, *(*base)->backend, {});
  require(engine.status());
  RouterOptions router_options;
  router_options.base_name = "base";
  router_options.base_digest = (*base)->digest;
  router_options.architecture = (*base)->config().architecture;
  std::vector<VariantSource> sources;
  for (const std::string& path : options.variants) sources.push_back({variant_name_of(path), path});
  std::atomic<int64_t> faults_at_load{0};
  auto files = files_loader((*base)->table, *(*base)->backend,
                            {router_options.base_digest, router_options.architecture, 0});
  auto router =
      Router::make(router_options, sources, (*base)->text,
                   std::make_unique<WatchedLoader>(std::move(files), faults_at_load), **engine);
  require(router.status());
  Client client(**router);

  uint64_t random = 88172645463325252u;
  const auto vocabulary = static_cast<uint64_t>((*base)->config().vocab);
  const auto prompt = [&] {  // each one new: nothing of it is in the prefix cache
    std::vector<int32_t> ids;
    for (int i = 0; i < options.prompt; ++i)
      ids.push_back(static_cast<int32_t>(next_random(random) % vocabulary));
    return ids;
  };
  for (int i = 0; i < kWarm; ++i) client.ask("base", prompt());

  Figures first, again;  // the very first load of each also reads its file's header before
  const auto count = static_cast<int>(sources.size());
  for (int round = 0; round < count + options.rounds; ++round) {
    const std::string& name = sources[static_cast<size_t>(round % count)].name;
    const uint64_t loads = info(**router, name).loads;
    const std::vector<int32_t> asked = prompt();
    const Answer cold = client.ask(name, asked);
    const VariantInfo after = info(**router, name);
    if (after.loads != loads + 1) stop(name + " was not loaded for its first request");
    std::vector<double> warm, faults;
    for (int i = 0; i < kWarm; ++i) {
      const Answer answer = client.ask(name, prompt());
      warm.push_back(answer.first_token);
      faults.push_back(answer.faults);
    }
    const int64_t faulted = cold.faults_then - faults_at_load;
    if (client.ask(name, asked).tokens != cold.tokens || cold.tokens.size() != kTokens)
      stop("the first answer of " + name + " is not what it answers later");
    if (info(**router, name).loads != loads + 1) stop(name + " was loaded twice");
    Figures& to = round < count ? first : again;
    to.cold.push_back(cold.first_token);
    to.load.push_back(after.load_seconds * 1e3);
    to.warm.push_back(median(warm));
    to.cold_faults.push_back(static_cast<double>(faulted));
    to.warm_faults.push_back(median(faults));
    to.difference.push_back(to.cold.back() - to.load.back() - to.warm.back());
    evict(**router, name);
  }
  std::printf("%d variants, prompts of %d tokens; every first answer as later ones; medians\n",
              count, options.prompt);
  first.print("the very first load of each");
  again.print("loads after an eviction");
  (*router)->shutdown(TimePoint::max());
  return 0;
}

int number(const char* text, const std::string& flag) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || value < 1 || value > 100'000)
    stop(flag + ": expected a number from 1 to 100000");
  return static_cast<int>(value);
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) {
  deltad::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rounds" || word == "--prompt") {
      if (i + 1 == argc) deltad::stop(word + ": expected a value");
      (word == "--rounds" ? options.rounds : options.prompt) = deltad::number(argv[++i], word);
    } else if (options.base.empty()) {
      options.base = word;
    } else {
      options.variants.push_back(word);
    }
  }
  if (options.variants.empty())
    deltad::stop(
        "expected a base model and variants; see the head of "
        "bench/serving/first_request.cc");
  return deltad::run(options);
}
