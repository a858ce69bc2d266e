// What the router costs a request, with few and with many variants registered: resolve, submit, the
// first token, the end, and the release of the variant, through the real router with its threads;
// loader and engine cost nothing. Requests go to fourteen variants that are in memory; 64 at once,
// or one after the other. Counted is the time of the caller, and the processor time of all threads
// together; also what the figures for /metrics cost, for which requests wait. Checks that every
// request came to the engine with its own variant and ended once, and that each variant was loaded
// once.
//   bench_routing_cost [requests]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "router/router.h"

namespace deltad {
namespace {

constexpr size_t kInUse = 14;
constexpr size_t kTogether[] = {64, 1};  // requests in flight at once
constexpr int kRounds = 7;

[[noreturn]] void stop(const std::string& why) {
  std::fprintf(stderr, "bench_routing_cost: %s\n", why.c_str());
  std::exit(1);
}
void require(const Status& status) {
  if (!status.ok()) stop(status.message());
}

// Variants without weights.
class NoLoader final : public VariantLoader {
 public:
  Result<VariantSize> measure(const std::string&) override { return VariantSize{1000, ""}; }
  Result<VariantRef> load(const std::string& name, const std::string&, Tier, int64_t,
                          const std::atomic<bool>&) override {
    auto variant = std::make_shared<Variant>();
    variant->name = name;
    variant->digest = "digest of " + name;
    variant->bytes = 1000;
    return VariantRef(std::move(variant));
  }
  Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
    return unimplemented("not used");
  }
};

// Keeps what it is given until end_all(), which ends it on the caller's thread.
class NoEngine final : public Engine {
 public:
  Result<RequestHandle> submit(Request request) override {
    requests_.push_back(std::move(request));
    return ++last_;
  }
  Status check(const Request&) const override { return {}; }
  void cancel(RequestHandle) override {}
  void shutdown(TimePoint) override {}
  EngineStats stats() const override { return {}; }
  int32_t max_context() const override { return 4096; }
  bool healthy() const override { return true; }

  const std::vector<Request>& requests() const { return requests_; }
  void end_all() {
    TokenEvent token, end;
    end.kind = TokenEvent::Kind::kFinished;
    end.reason = FinishReason::kStop;
    for (Request& request : requests_) {
      request.on_event(token);
      request.variant.reset();
      request.on_event(end);
    }
    requests_.clear();
  }

 private:
  std::vector<Request> requests_;
  RequestHandle last_ = 0;
};

double processor_micros() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}
double wall_micros() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Cost {
  double wall = 1e9, processor = 1e9;
  void keep_best(const Cost& other) {
    wall = std::min(wall, other.wall);
    processor = std::min(processor, other.processor);
  }
};

class Bench {
 public:
  Bench(size_t registered, const std::string& any_file) : registered_(registered) {
    RouterOptions options;
    options.base_name = "base";
    options.cache_bytes = int64_t{1} << 20;
    std::vector<VariantSource> sources;
    for (size_t i = 0; i < registered; ++i) {
      // Those in use lie anywhere among the names.
      sources.push_back({"org/variant-" + std::to_string(i * 7919 % registered), any_file});
      if (i < kInUse) names_.push_back(sources.back().name);
    }
    auto router = Router::make(options, sources, std::make_shared<TextAssets>(),
                               std::make_unique<NoLoader>(), engine_);
    require(router.status());
    router_ = std::move(*router);
    for (const std::string& name : names_) require(router_->prefetch(name));
    while (router_->stats().cache.loads != kInUse)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~Bench() { router_->shutdown(Clock::real().now()); }

  Cost run(size_t requests, size_t together) {
    requests = requests / together * together;
    size_t ended = 0;
    const double wall = wall_micros(), processor = processor_micros();
    for (size_t i = 0; i < requests; i += together) {
      for (size_t j = 0; j < together; ++j) {
        const auto model = router_->resolve(names_[(i + j) % kInUse]);
        require(model.status());
        Request request;
        request.on_event = [&ended](const TokenEvent& event) {
          ended += event.kind == TokenEvent::Kind::kFinished;
        };
        require(router_->submit(*model, std::move(request)).status());
      }
      for (size_t j = 0; j < together; ++j) {
        const VariantRef& variant = engine_.requests().at(j).variant;
        if (!variant || variant->name != names_[(i + j) % kInUse])
          stop("a request came with another variant than its own");
      }
      engine_.end_all();
    }
    const auto n = static_cast<double>(requests);
    const Cost cost{(wall_micros() - wall) / n, (processor_micros() - processor) / n};
    if (ended != requests) stop("a request did not end once");
    if (router_->stats().cache.loads != kInUse) stop("a variant was loaded more than once");
    return cost;
  }
  Cost figures() const {
    constexpr int kTimes = 20;
    const double wall = wall_micros(), processor = processor_micros();
    for (int i = 0; i < kTimes; ++i)
      if (router_->stats().rows.size() != std::min(registered_, kMostVariantSeries))
        stop("the figures lack a variant");
    return {(wall_micros() - wall) / kTimes, (processor_micros() - processor) / kTimes};
  }

 private:
  const size_t registered_;
  NoEngine engine_;
  std::vector<std::string> names_;
  std::unique_ptr<Router> router_;
};

int run(size_t requests, const std::string& any_file) {
  const size_t registered[] = {kInUse, 1000, 10'000};
  std::vector<std::unique_ptr<Bench>> benches;
  for (const size_t n : registered) benches.push_back(std::make_unique<Bench>(n, any_file));
  std::printf("%zu variants in memory and asked for; best of %d rounds of %zu requests, in turns\n",
              kInUse, kRounds, requests);
  for (const size_t together : kTogether) {
    std::vector<Cost> best(benches.size());
    for (int round = 0; round < kRounds; ++round)
      for (size_t b = 0; b < benches.size(); ++b)
        best[b].keep_best(benches[b]->run(requests, together));
    for (size_t b = 0; b < benches.size(); ++b)
      std::printf(
          "%2zu at once, %5zu registered: %5.2f µs a request in the caller, %5.2f µs of processor "
          "time\n",
          together, registered[b], best[b].wall, best[b].processor);
  }
  for (size_t b = 0; b < benches.size(); ++b)
    std::printf("the figures for /metrics of %5zu registered: %7.1f µs\n", registered[b],
                benches[b]->figures().wall);
  return 0;
}

}  // namespace
}  // namespace deltad

int main(int argc, char** argv) {
  const long requests = argc > 1 ? std::atol(argv[1]) : 200'000;
  if (requests < 64) deltad::stop("expected a number of requests, 64 or more");
  return deltad::run(static_cast<size_t>(requests), argv[0]);
}
