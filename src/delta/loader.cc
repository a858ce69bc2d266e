#include "delta/loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/log.h"
#include "delta/variant_path.h"
#include "delta/variant_reader.h"
#include "io/bulk_reader.h"
#include "tensor/arena.h"

namespace deltad {
namespace {

Result<std::unique_ptr<VariantReader>> open_reader(const std::string& path,
                                                   const WeightTable& table,
                                                   const VariantLoadOptions& options) {
  return is_adapter(path) ? open_adapter_reader(path, table, options)
                          : open_delta_reader(path, table, options);
}

// Rows of the head that the variant ends up with.
int64_t head_rows(const VariantReader& reader, const WeightTable& table) {
  const WeightId from = reader.head_follows_embeddings() ? table.embedding : table.head;
  for (const VariantContent::Dense& dense : reader.content().dense)
    if (dense.weight == from) return dense.rows;
  return table.specs[static_cast<size_t>(table.head)].parts[0].rows;
}

// For a load with a cap. Memory that has been free for some seconds can cost a virtual machine
// milliseconds a huge page, as its host has taken it back. Taken up while it is filled, that would
// come again and again as long as the load lasts; taken up within about a second, in short pieces,
// it is what the variants evicted for this one have just left.
Status populate_gently(VariantWeights& weights, const std::string& path,
                       const VariantLoadOptions& options) {
  constexpr Duration kLongestNap = std::chrono::milliseconds(5), kAll = std::chrono::seconds(1);
  const auto pages = static_cast<int64_t>(weights.bytes() / kHugePageBytes + 1);
  const Duration nap = std::min(kLongestNap, kAll / pages);
  return weights.populate([&]() -> Status {
    RETURN_IF_ERROR(check_cancelled(options.cancelled, path));
    std::this_thread::sleep_for(nap);
    return {};
  });
}

Result<size_t> bytes_of(const VariantReader& reader, const WeightStore& store) {
  const Result<size_t> bytes = store.variant_bytes(reader.content());
  if (!bytes.ok()) return bytes.status().in(reader.path());
  return bytes;
}

}  // namespace

Result<VariantSize> measure_variant(const std::string& path, const WeightTable& table,
                                    const WeightStore& store, const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(const auto reader, open_reader(path, table, options));
  ASSIGN_OR_RETURN(const size_t bytes, bytes_of(*reader, store));
  return VariantSize{static_cast<int64_t>(bytes), reader->claimed_digest()};
}

Status check_variant_header(const std::string& path, const WeightTable& table,
                            const VariantLoadOptions& options) {
  return open_reader(path, table, options).status();
}

Result<std::string> verify_variant(const std::string& path, const WeightTable& table,
                                   const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(const auto reader, open_reader(path, table, options));
  return reader->read(nullptr);
}

Result<VariantRef> load_variant(const std::string& name, const std::string& path,
                                const WeightTable& table, WeightStore& store,
                                const VariantLoadOptions& given) {
  VariantLoadOptions options = given;
  options.ranks = store.ranks();
  FileStamp stamp = stamp_of(path);
  ASSIGN_OR_RETURN(const auto reader, open_reader(path, table, options));
  if (!reader->says_base() && !options.base_digest.empty())
    log_warning("variant '{}': {} does not say which base it was made for; not checked", name,
                reader->path());
  if (options.max_bytes > 0) {
    ASSIGN_OR_RETURN(const size_t bytes, bytes_of(*reader, store));
    if (bytes > options.max_bytes)
      return resource_exhausted(fmt::format("{}: it takes {} bytes, but {} were set aside for it",
                                            reader->path(), bytes, options.max_bytes));
  }
  auto made = store.new_variant(reader->content());
  if (!made.ok()) return made.status().in(reader->path());
  std::unique_ptr<VariantWeights> weights = std::move(*made);
  if (options.rate != nullptr) RETURN_IF_ERROR(populate_gently(*weights, reader->path(), options));
  ASSIGN_OR_RETURN(const std::string digest, reader->read(weights.get()));
  if (reader->head_follows_embeddings()) weights->alias_weight(table.head, table.embedding);
  RETURN_IF_ERROR(weights->finish(options.cancelled).in(reader->path()));

  auto variant = std::make_shared<Variant>();
  variant->name = name;
  variant->digest = digest;
  variant->vocab = head_rows(*reader, table);
  variant->bytes = weights->bytes();
  variant->weights = std::move(weights);
  variant->path = path;
  variant->stamp = std::move(stamp);
  return VariantRef(std::move(variant));
}

Result<VariantRef> copy_to_host(const Variant& variant) {
  if (variant.stamp.empty())
    return unavailable(
        fmt::format("{} could not be looked at when it was read, so nobody could tell whether a "
                    "copy is current",
                    variant.path));
  ASSIGN_OR_RETURN(std::unique_ptr<VariantImage> image, variant.weights->copy_to_host());
  auto copy = std::make_shared<Variant>(variant);
  copy->weights = nullptr;
  copy->image = std::move(image);
  return VariantRef(std::move(copy));
}

bool is_current(const Variant& variant) {
  return !variant.stamp.empty() && stamp_of(variant.path) == variant.stamp;
}

Result<VariantRef> restore_variant(const Variant& copy, WeightStore& store,
                                   const std::atomic<bool>& cancelled) {
  ASSIGN_OR_RETURN(std::unique_ptr<VariantWeights> weights, store.restore(*copy.image, cancelled));
  auto variant = std::make_shared<Variant>(copy);
  variant->weights = std::move(weights);
  variant->image = nullptr;
  return VariantRef(std::move(variant));
}

}  // namespace deltad
