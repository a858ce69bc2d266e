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
    return beside([&] { return verify_variant(path, table_, reading(cancelled)); });
  }

  Result<VariantRef> load(const std::string& name, const std::string& path, Tier, int64_t max_bytes,
                          const std::atomic<bool>& cancelled) override {
    VariantLoadOptions options = reading(cancelled);
    options.max_bytes = static_cast<size_t>(max_bytes);
    return beside([&] { return load_variant(name, path, table_, backend_, options); });
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

  // Who caps loads wants running requests undisturbed: then loads take what time these leave.
  template <typename Work>
  auto beside(const Work& work) -> decltype(work()) {
    if (!rate_) return work();
    return std::async(std::launch::async,
                      [&] {
                        run_behind_others();
                        return work();
                      })
        .get();
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
