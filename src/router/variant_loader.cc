#include "router/variant_loader.h"

#include <future>
#include <memory>
#include <optional>

#include "base/scheduling.h"
#include "io/rate_limit.h"

namespace deltad {
namespace {

class FilesLoader final : public VariantLoader {
 public:
  FilesLoader(const WeightTable& table, Backend& backend, const FilesLoaderOptions& options)
      : table_(table), backend_(backend), options_(options) {
    if (options.bytes_per_second > 0) rate_.emplace(options.bytes_per_second);
  }

  Result<VariantSize> measure(const std::string& path) override {
    return measure_variant(path, table_, backend_, load_options());
  }

  Result<std::string> verify(const std::string& path, const std::atomic<bool>& cancelled) override {
    const auto verify = [&] { return verify_variant(path, table_, reading(cancelled)); };
    return rate_ ? behind_others(verify) : verify();
  }

  Result<VariantRef> load(const std::string& name, const std::string& path, Tier, int64_t max_bytes,
                          const std::atomic<bool>& cancelled) override {
    return rate_ ? load_behind_others(name, path, Tier::kDevice, max_bytes, cancelled)
                 : load_promptly(name, path, max_bytes, cancelled);
  }

  Result<VariantRef> load_behind_others(const std::string& name, const std::string& path, Tier,
                                        int64_t max_bytes,
                                        const std::atomic<bool>& cancelled) override {
    return behind_others([&] { return load_now(name, path, max_bytes, cancelled); });
  }

  Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
    return unimplemented("this backend has one tier of memory: there is nothing to copy");
  }

 private:
  VariantLoadOptions load_options() const {
    VariantLoadOptions options;
    options.base_digest = options_.base_digest;
    options.architecture = options_.architecture;
    return options;
  }

  Result<VariantRef> load_now(const std::string& name, const std::string& path, int64_t max_bytes,
                              const std::atomic<bool>& cancelled) {
    VariantLoadOptions options = reading(cancelled);
    options.max_bytes = static_cast<size_t>(max_bytes);
    return load_variant(name, path, table_, backend_, options);
  }

  // Who caps loads wants running requests undisturbed: then loads take what time these leave.
  template <typename Work>
  auto behind_others(const Work& work) -> decltype(work()) {
    return std::async(std::launch::async,
                      [&] {
                        run_behind_others();
                        return work();
                      })
        .get();
  }

  // Uncapped, a load is waited for. It reads a stretch and works on it for a fraction of a
  // millisecond, hundreds of times: were it to wait for a whole time slice of a kernel worker after
  // each read, it would take several times as long, and these workers would wait for each other as
  // often. Threads that read along inherit the wish.
  Result<VariantRef> load_promptly(const std::string& name, const std::string& path,
                                   int64_t max_bytes, const std::atomic<bool>& cancelled) {
    run_promptly(false);
    return load_now(name, path, max_bytes, cancelled);
  }

  VariantLoadOptions reading(const std::atomic<bool>& cancelled) {
    VariantLoadOptions options = load_options();
    options.cancelled = &cancelled;
    options.rate = rate_ ? &*rate_ : nullptr;
    return options;
  }

  const WeightTable& table_;
  Backend& backend_;
  const FilesLoaderOptions options_;
  std::optional<RateLimit> rate_;  // of all loads together
};

}  // namespace

std::unique_ptr<VariantLoader> files_loader(const WeightTable& table, Backend& backend,
                                            const FilesLoaderOptions& options) {
  return std::make_unique<FilesLoader>(table, backend, options);
}

}  // namespace deltad
