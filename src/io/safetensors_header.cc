// The JSON header of a safetensors file: parsed event by event (no tree is built, so a hostile
// header costs no more memory than it is long), then checked against the file's size before
// anything is believed.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "io/quote.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

using Json = nlohmann::json;

// One tensor's description as the header has it.
struct Described {
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

class HeaderParser final : public nlohmann::json_sax<Json> {
 public:
  std::map<std::string, std::string> metadata;
  std::map<std::string, Described> tensors;
  Status status;

  bool null() override { return wrong_value("null"); }
  bool boolean(bool) override { return wrong_value("true or false"); }
  bool number_integer(number_integer_t) override { return wrong_value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return wrong_value("a number that is no 64-bit integer");
  }
  bool binary(binary_t&) override { return wrong_value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kList) return wrong_value("a number");
    if (list_->size() == kLongestList)
      return fail(fmt::format("tensor {}: '{}' has more than {} numbers", quoted_name(tensor_),
                              key_, kLongestList));
    list_->push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!metadata.emplace(key_, value).second)
        return fail(fmt::format("metadata key {} is there twice", quoted_name(key_)));
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype") return wrong_value("a string");
    if (described_->dtype) return twice();
    described_->dtype = value;
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return wrong_value("an object");
    if (key_ == "__metadata__") {
      if (seen_metadata_) return fail("'__metadata__' is there twice");
      seen_metadata_ = true;
      place_ = Place::kMetadata;
      return true;
    }
    const auto [at, is_new] = tensors.try_emplace(key_);
    if (!is_new) return fail(fmt::format("tensor {} is there twice", quoted_name(key_)));
    tensor_ = key_;
    described_ = &at->second;
    place_ = Place::kTensor;
    return true;
  }

  bool key(string_t& value) override {
    key_ = value;
    if (place_ == Place::kTensor && key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      return fail(fmt::format("tensor {} has a key {}; expected dtype, shape and data_offsets",
                              quoted_name(tensor_), quoted_name(key_)));
    return true;
  }

  bool end_object() override {
    place_ = place_ == Place::kTop ? Place::kDone : Place::kTop;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || key_ == "dtype") return wrong_value("a list");
    auto& list = key_ == "shape" ? described_->shape : described_->offsets;
    if (list) return twice();
    list_ = &list.emplace();
    place_ = Place::kList;
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return fail(fmt::format("the header is no valid JSON at byte {} of it", position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kList, kDone };
  static constexpr size_t kLongestList = 32;

  bool fail(std::string message) {
    status = invalid_argument(std::move(message));
    return false;
  }
  bool twice() {
    return fail(fmt::format("tensor {}: '{}' is there twice", quoted_name(tensor_), key_));
  }
  bool wrong_value(std::string_view found) {
    switch (place_) {
      case Place::kMetadata:
        return fail(
            fmt::format("metadata key {} is {}; expected a string", quoted_name(key_), found));
      case Place::kTensor:
      case Place::kList:
        return fail(fmt::format("tensor {}: '{}' has {}; expected {}", quoted_name(tensor_), key_,
                                found, key_ == "dtype" ? "a string" : "a list of numbers ≥ 0"));
      case Place::kTop:
        return fail(fmt::format("tensor {} is {}; expected an object", quoted_name(key_), found));
      case Place::kStart:
      case Place::kDone:
        break;
    }
    return fail(fmt::format("the header is {}; expected an object", found));
  }

  Place place_ = Place::kStart;
  bool seen_metadata_ = false;
  std::string key_, tensor_;
  Described* described_ = nullptr;
  std::vector<uint64_t>* list_ = nullptr;
};

// The entry, with its offset still relative to the data's begin.
Result<SafetensorsEntry> check_tensor(const std::string& name, const Described& described,
                                      int64_t data_bytes) {
  const std::string tensor = "tensor " + quoted_name(name);
  if (!described.dtype || !described.shape || !described.offsets)
    return invalid_argument(
        fmt::format("{} lacks '{}'", tensor,
                    !described.dtype ? "dtype" : (!described.shape ? "shape" : "data_offsets")));
  const std::optional<DType> dtype = dtype_from_name(*described.dtype);
  if (!dtype)
    return unimplemented(
        fmt::format("{} has the type {}; supported are F32, F16, BF16, U8, I8, I32 and I64", tensor,
                    quoted_name(*described.dtype)));
  if (described.shape->size() > Shape::kMaxRank)
    return unimplemented(fmt::format("{} has {} dimensions; at most {} are supported", tensor,
                                     described.shape->size(), Shape::kMaxRank));
  Shape shape;
  int64_t bytes = static_cast<int64_t>(dtype_size(*dtype));
  for (uint64_t size : *described.shape) {
    if (size > INT64_MAX || __builtin_mul_overflow(bytes, size, &bytes))
      return invalid_argument(
          fmt::format("{}: the sizes of its shape multiply to more than 2^63 bytes", tensor));
    shape.append(static_cast<int64_t>(size));
  }
  if (described.offsets->size() != 2)
    return invalid_argument(fmt::format("{}: 'data_offsets' has {} numbers; expected 2", tensor,
                                        described.offsets->size()));
  const uint64_t begin = (*described.offsets)[0], end = (*described.offsets)[1];
  if (begin > end || end > static_cast<uint64_t>(data_bytes))
    return invalid_argument(
        fmt::format("{}: its data_offsets [{}, {}] are not within the {} bytes of data in the file",
                    tensor, begin, end, data_bytes));
  if (end - begin != static_cast<uint64_t>(bytes))
    return invalid_argument(fmt::format("{}: data_offsets span {} bytes, but {} of shape {} has {}",
                                        tensor, end - begin, dtype_name(*dtype), shape.str(),
                                        bytes));
  return SafetensorsEntry{*dtype, shape, static_cast<int64_t>(begin), bytes};
}

}  // namespace

Status SafetensorsFile::parse_header(std::string_view json, int64_t data_begin, int64_t file_bytes,
                                     std::map<std::string, std::string>* metadata,
                                     std::map<std::string, SafetensorsEntry>* tensors) {
  HeaderParser parser;
  if (!Json::sax_parse(json.begin(), json.end(), &parser))
    return parser.status.ok() ? invalid_argument("the header is no valid JSON") : parser.status;

  const int64_t data_bytes = file_bytes - data_begin;
  std::vector<std::pair<const std::string*, const SafetensorsEntry*>> in_order;
  in_order.reserve(parser.tensors.size());
  std::map<std::string, SafetensorsEntry> checked;
  for (const auto& [name, described] : parser.tensors) {
    ASSIGN_OR_RETURN(const SafetensorsEntry entry, check_tensor(name, described, data_bytes));
    const auto at = checked.emplace(name, entry).first;
    in_order.emplace_back(&at->first, &at->second);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->offset, a.second->bytes) <
           std::pair(b.second->offset, b.second->bytes);
  });
  // Every byte of the data belongs to one tensor: no overlap, no gap, nothing behind the last.
  int64_t end = 0;
  const std::string* previous = nullptr;
  for (const auto& [name, entry] : in_order) {
    if (entry->offset < end)
      return invalid_argument(
          fmt::format("tensor {} begins at {}, inside tensor {} that ends at {}",
                      quoted_name(*name), entry->offset, quoted_name(*previous), end));
    if (entry->offset > end)
      return invalid_argument(
          fmt::format("tensor {} begins at {}; expected {}, the end of what is before it",
                      quoted_name(*name), entry->offset, end));
    end = entry->offset + entry->bytes;
    previous = name;
  }
  if (end != data_bytes)
    return invalid_argument(
        fmt::format("the tensors end at byte {} of the data, but the file has {} bytes of data",
                    end, data_bytes));
  for (auto& [name, entry] : checked) entry.offset += data_begin;
  *metadata = std::move(parser.metadata);
  *tensors = std::move(checked);
  return {};
}

}  // namespace deltad
