#include "router/variant_loader.h"

#include <atomic>
#include <future>
#include <memory>

#include "base/scheduling.h"
#include "io/rate_limit.h"

namespace deltad {
namespace {

class FilesLoader final : public VariantLoader {
 public:
  FilesLoader(const WeightTable& table, WeightStore& store, const FilesLoaderOptions& options)
      : table_(table), store_(store), options_(options), capped_(options.bytes_per_second > 0) {
    if (capped_) rate_.set(options.bytes_per_second);
  }

  void set_rate(int64_t bytes_per_second) override {
    if (bytes_per_second > 0) rate_.set(bytes_per_second);
    capped_ = bytes_per_second > 0;
  }

  Result<VariantSize> measure(const std::string& path) override {
    return measure_variant(path, table_, store_, load_options());
  }

  Result<std::string> verify(const std::string& path, const std::atomic<bool>& cancelled) override {
    const auto verify = [&] { return verify_variant(path, table_, reading(cancelled)); };
    return capped_ ? behind_others(verify) : verify();
  }

  Result<VariantRef> load(const std::string& name, const std::string& path, Tier, int64_t max_bytes,
                          const std::atomic<bool>& cancelled) override {
    return capped_ ? load_behind_others(name, path, Tier::kDevice, max_bytes, cancelled)
                   : load_promptly(name, path, max_bytes, cancelled);
  }

  Result<VariantRef> load_behind_others(const std::string& name, const std::string& path, Tier,
                                        int64_t max_bytes,
                                        const std::atomic<bool>& cancelled) override {
    return behind_others([&] { return load_now(name, path, max_bytes, cancelled); });
  }

  // The kernels of the device bring what is read into its layout.
  bool loads_to_host() const override { return false; }
  bool is_current(const Variant& variant) override { return deltad::is_current(variant); }
  Result<VariantRef> copy(const VariantRef& variant, Tier to,
                          const std::atomic<bool>& cancelled) override {
    return to == Tier::kHost ? copy_to_host(*variant)
                             : restore_variant(*variant, store_, cancelled);
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
    return load_variant(name, path, table_, store_, options);
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
    options.rate = capped_ ? &rate_ : nullptr;
    return options;
  }

  const WeightTable& table_;
  WeightStore& store_;
  const FilesLoaderOptions options_;
  std::atomic<bool> capped_;
  RateLimit rate_;  // of all loads together, if they are capped
};

}  // namespace

std::unique_ptr<VariantLoader> files_loader(const WeightTable& table, WeightStore& store,
                                            const FilesLoaderOptions& options) {
  return std::make_unique<FilesLoader>(table, store, options);
}

}  // namespace deltad
