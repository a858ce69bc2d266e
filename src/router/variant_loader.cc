#include "router/variant_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "delta/delta_file.h"
#include "delta/loader.h"

namespace deltad {
namespace {

class FilesLoader final : public VariantLoader {
 public:
  FilesLoader(const WeightTable& table, Backend& backend, std::string base_digest,
              std::string architecture)
      : table_(table),
        backend_(backend),
        base_digest_(std::move(base_digest)),
        architecture_(std::move(architecture)) {}

  Result<VariantSize> measure(const std::string& path) override {
    ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::open(path));
    RETURN_IF_ERROR(delta.check_base(architecture_, base_digest_));
    RETURN_IF_ERROR(delta.check_shapes(table_));
    std::map<WeightId, WeightChange> changes;
    const auto change_of = [&](const std::string& tensor) -> WeightChange& {
      const WeightId weight = table_.by_name.at(tensor).weight;
      changes[weight].weight = weight;
      return changes[weight];
    };
    for (const auto& [tensor, levels] : delta.matrices()) {
      WeightChange& change = change_of(tensor);
      change.levels = std::max(change.levels, static_cast<int>(levels.size()));
    }
    for (const auto& [tensor, entry] : delta.dense()) {
      WeightChange& change = change_of(tensor);
      const auto& parts = table_.specs[static_cast<size_t>(change.weight)].parts;
      change.dense_rows = parts.size() > 1 ? parts.back().rows : entry.shape[0];
    }
    std::vector<WeightChange> list;
    for (const auto& [weight, change] : changes) list.push_back(change);
    return VariantSize{static_cast<int64_t>(backend_.variant_bytes(list)), delta.header().digest};
  }

  Result<VariantRef> load(const std::string& name, const std::string& path, Tier, int64_t max_bytes,
                          const std::atomic<bool>& cancelled) override {
    ASSIGN_OR_RETURN(const VariantSize size, measure(path));  // it may be another file by now
    if (size.bytes > max_bytes)
      return resource_exhausted(fmt::format("{}: it takes {} bytes, but {} were set aside for it",
                                            path, size.bytes, max_bytes));
    VariantLoadOptions options;
    options.base_digest = base_digest_;
    options.architecture = architecture_;
    options.cancelled = &cancelled;
    return load_variant(name, path, table_, backend_, options);
  }

  Result<VariantRef> copy(const VariantRef&, Tier, const std::atomic<bool>&) override {
    return unimplemented("this backend has one tier of memory: there is nothing to copy");
  }

 private:
  const WeightTable& table_;
  Backend& backend_;
  const std::string base_digest_, architecture_;
};

}  // namespace

std::unique_ptr<VariantLoader> files_loader(const WeightTable& table, Backend& backend,
                                            std::string base_digest, std::string architecture) {
  return std::make_unique<FilesLoader>(table, backend, std::move(base_digest),
                                       std::move(architecture));
}

}  // namespace deltad
