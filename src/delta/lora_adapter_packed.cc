// LoraAdapter from a packed file (delta/packed_adapter.h).
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "delta/lora_adapter.h"
#include "delta/packed_adapter.h"
#include "io/quote.h"

namespace deltad {
namespace {

Result<std::string> metadata_of(const SafetensorsFile& file, const std::string& key) {
  const auto at = file.metadata().find(key);
  if (at != file.metadata().end()) return at->second;
  return invalid_argument(fmt::format("{}: its metadata has no '{}'", file.path(), key));
}

Result<double> number_of(const SafetensorsFile& file, const std::string& key) {
  ASSIGN_OR_RETURN(const std::string text, metadata_of(file, key));
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return invalid_argument(
      fmt::format("{}: {} is {}, expected a number", file.path(), key, quoted_name(text)));
}

}  // namespace

Status LoraAdapter::open_packed(const std::string& path, const WeightTable* table) {
  if (table == nullptr)
    return invalid_argument(
        fmt::format("{}: the shapes of a packed adapter are its base's: give the base", path));
  ASSIGN_OR_RETURN(const std::shared_ptr<FileReader> reader, FileReader::open(path));
  reader_ = reader;
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(reader));
  for (const auto& [key, expected] :
       {std::pair{"format", kPackedFormat}, std::pair{"version", kPackedVersion}}) {
    ASSIGN_OR_RETURN(const std::string found, metadata_of(file, key));
    if (found != expected)
      return invalid_argument(fmt::format("{}: {} is {}, expected '{}' for a packed adapter", path,
                                          key, quoted_name(found), expected));
  }
  ASSIGN_OR_RETURN(const std::string bits, metadata_of(file, "bits"));
  if (bits != "16" && bits != "8" && bits != "4")
    return invalid_argument(
        fmt::format("{}: bits is {}, expected 16, 8 or 4", path, quoted_name(bits)));
  packed_bits_ = std::stoi(bits);
  ASSIGN_OR_RETURN(base_digest_, metadata_of(file, "base_digest"));
  ASSIGN_OR_RETURN(digest_, metadata_of(file, "digest"));
  ASSIGN_OR_RETURN(const double scale, number_of(file, "scale"));
  for (const auto& [name, entry] : file.tensors()) {
    const auto place = table->by_name.find(name + ".weight");
    if (place == table->by_name.end())
      return invalid_argument(
          fmt::format("{}: tensor {} belongs to no module of the base", path, quoted_name(name)));
    const WeightSpec& spec = table->specs[static_cast<size_t>(place->second.weight)];
    if (spec.kind == WeightKind::kVector || place->second.weight == table->embedding)
      return wrong(name, "packed factors are of linear layers only");
    const int64_t inputs = spec.columns;
    const int64_t outputs = spec.parts[static_cast<size_t>(place->second.part)].rows;
    const int64_t row_bytes = packed_row_bytes(packed_bits_, inputs, outputs);
    const Shape& shape = entry.shape;
    if (entry.dtype != DType::kU8 || shape.rank() != 2 || shape[1] != row_bytes)
      return wrong(name, fmt::format("it is {} {}, expected U8 [rank, {}]", dtype_name(entry.dtype),
                                     shape.str(), row_bytes));
    if (shape[0] < 1 || shape[0] > kMaxLowRank)
      return wrong(name, fmt::format("its rank is {}, expected 1 to {}", shape[0], kMaxLowRank));
    AdapterChange& change = changes_[name + ".weight"];
    change.packed = entry;
    change.rank = shape[0];
    change.scale = scale;
    if (file.metadata().count("scale." + name) != 0) {
      ASSIGN_OR_RETURN(change.scale, number_of(file, "scale." + name));
    }
    change.a = AdapterTensor{name, {DType::kF32, Shape{change.rank, inputs}, 0, 0}};
    change.b = AdapterTensor{name, {DType::kF32, Shape{outputs, change.rank}, 0, 0}};
  }
  return {};
}

Status LoraAdapter::unpack(const AdapterChange& change, const uint8_t* raw, std::vector<float>* a,
                           std::vector<float>* b) const {
  AdapterFactors factors;
  factors.rank = change.rank;
  factors.inputs = change.a->entry.shape[1];
  factors.outputs = change.b->entry.shape[0];
  const Status unpacked = unpack_factors(packed_bits_, raw, &factors);
  if (!unpacked.ok()) return wrong(change.a->name, unpacked.message());
  *a = std::move(factors.a);
  *b = std::move(factors.b);
  return {};
}

Status LoraAdapter::read_packed_rows(const AdapterChange& change, bool of_a, int64_t first,
                                     int64_t count, float* out) const {
  std::vector<uint8_t> raw(static_cast<size_t>(change.packed->bytes));
  RETURN_IF_ERROR(reader_->read(change.packed->offset, change.packed->bytes, raw.data()));
  std::vector<float> a, b;
  RETURN_IF_ERROR(unpack(change, raw.data(), &a, &b));
  const int64_t columns = (of_a ? change.a : change.b)->entry.shape[1];
  std::copy_n((of_a ? a : b).begin() + first * columns, count * columns, out);
  return {};
}

}  // namespace deltad
