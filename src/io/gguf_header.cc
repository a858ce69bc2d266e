// Reading the header of a GGUF v3 file. All numbers are little-endian; a string is a u64 length and
// its bytes.
//   "GGUF", u32 version, u64 number of tensors, u64 number of metadata entries
//   entry:  string key, u32 type, value; a list is u32 type of its elements, u64 count, the
//   elements tensor: string name, u32 rank, u64 sizes[rank] innermost first, u32 type, u64 offset
//   in the data padding to the alignment (metadata general.alignment, else 32), then the data, each
//   tensor aligned
// Nothing is allocated before the file is known to be long enough for it.
#include "io/gguf_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "io/quote.h"

namespace deltad {
namespace {

constexpr uint32_t kVersion = 3;
// Far above any real header (a vocabulary of 256k tokens takes 6 MB); bounds what a hostile file
// makes us hold.
constexpr int64_t kMaxHeaderBytes = int64_t{64} << 20;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's limit
constexpr uint64_t kMaxTensorNameBytes = 1024;
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1, kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kFloat32,
  kBool,
  kString,
  kList,
  kU64,
  kI64,
  kFloat64
};

// Reads forward through a window of the file.
class Cursor {
 public:
  explicit Cursor(const FileReader& file)
      : file_(file), end_(std::min(file.size(), kMaxHeaderBytes)) {}

  int64_t position() const { return window_at_ + static_cast<int64_t>(used_); }
  uint64_t left() const { return static_cast<uint64_t>(end_ - position()); }

  Status bytes(void* out, uint64_t count, std::string_view what) {
    if (count > left())
      return invalid_argument(
          file_.size() > end_
              ? fmt::format("{} of {} bytes at {}: the header is longer than the {} bytes that are "
                            "allowed",
                            what, count, position(), kMaxHeaderBytes)
              : fmt::format("{} of {} bytes at {} is beyond the file's {} bytes", what, count,
                            position(), file_.size()));
    char* to = static_cast<char*>(out);
    while (count > 0) {
      if (used_ == window_.size()) RETURN_IF_ERROR(refill());
      const size_t part = std::min<uint64_t>(count, window_.size() - used_);
      std::memcpy(to, window_.data() + used_, part);
      used_ += part;
      to += part;
      count -= part;
    }
    return {};
  }
  template <typename T>
  Status number(T* out, std::string_view what) {
    return bytes(out, sizeof(T), what);
  }
  Status string(std::string* out, uint64_t longest, std::string_view what) {
    uint64_t length = 0;
    RETURN_IF_ERROR(number(&length, what));
    if (length > longest)
      return invalid_argument(fmt::format("{} at {} has {} bytes; at most {} are allowed", what,
                                          position(), length, longest));
    if (length > left()) return bytes(nullptr, length, what);  // says what is wrong
    out->resize(length);
    return bytes(out->data(), length, what);
  }

 private:
  Status refill() {
    window_at_ += static_cast<int64_t>(window_.size());
    window_.resize(static_cast<size_t>(std::min(end_ - window_at_, int64_t{256} << 10)));
    used_ = 0;
    return file_.read(window_at_, static_cast<int64_t>(window_.size()), window_.data());
  }

  const FileReader& file_;
  const int64_t end_;
  int64_t window_at_ = 0;  // where in the file the window begins
  std::string window_;
  size_t used_ = 0;
};

size_t value_size(uint32_t type) {
  switch (type) {
    case kU8:
    case kI8:
    case kBool:
      return 1;
    case kU16:
    case kI16:
      return 2;
    case kU32:
    case kI32:
    case kFloat32:
      return 4;
    case kU64:
    case kI64:
    case kFloat64:
      return 8;
    case kString:
      return 8;  // at least: its length
    default:
      return 0;  // a list, or unknown
  }
}

// What one scalar of a type is, as one of the two number types that metadata has.
template <typename Stored, typename Held>
Status read_number(Cursor& cursor, std::string_view what, Held* out) {
  Stored stored{};
  RETURN_IF_ERROR(cursor.number(&stored, what));
  *out = static_cast<Held>(stored);
  return {};
}

Status read_integer(Cursor& cursor, uint32_t type, std::string_view what, int64_t* out) {
  switch (type) {
    case kU8:
      return read_number<uint8_t>(cursor, what, out);
    case kI8:
      return read_number<int8_t>(cursor, what, out);
    case kU16:
      return read_number<uint16_t>(cursor, what, out);
    case kI16:
      return read_number<int16_t>(cursor, what, out);
    case kU32:
      return read_number<uint32_t>(cursor, what, out);
    case kI32:
      return read_number<int32_t>(cursor, what, out);
    case kBool: {
      RETURN_IF_ERROR(read_number<uint8_t>(cursor, what, out));
      if (*out > 1)
        return invalid_argument(
            fmt::format("{} is a boolean of value {}; expected 0 or 1", what, *out));
      return {};
    }
    default:
      return cursor.number(out, what);
  }
}

bool is_float(uint32_t type) { return type == kFloat32 || type == kFloat64; }

Status read_float(Cursor& cursor, uint32_t type, std::string_view what, double* out) {
  return type == kFloat32 ? read_number<float>(cursor, what, out) : cursor.number(out, what);
}

Status read_list(Cursor& cursor, const std::string& what, GgufValue* out) {
  uint32_t type = 0;
  uint64_t count = 0;
  RETURN_IF_ERROR(cursor.number(&type, what));
  RETURN_IF_ERROR(cursor.number(&count, what));
  if (type == kList) return unimplemented(fmt::format("{} is a list of lists", what));
  const size_t size = value_size(type);
  if (size == 0)
    return invalid_argument(fmt::format("{} is a list of the unknown value type {}", what, type));
  if (count > cursor.left() / size)
    return invalid_argument(
        fmt::format("{} is a list of {} elements, more than the {} bytes left "
                    "can hold",
                    what, count, cursor.left()));
  if (type == kString) {
    for (std::string& text : out->emplace<std::vector<std::string>>(count))
      RETURN_IF_ERROR(cursor.string(&text, UINT64_MAX, what));
    return {};
  }
  if (is_float(type)) {
    for (double& number : out->emplace<std::vector<double>>(count))
      RETURN_IF_ERROR(read_float(cursor, type, what, &number));
    return {};
  }
  for (int64_t& number : out->emplace<std::vector<int64_t>>(count)) {
    RETURN_IF_ERROR(read_integer(cursor, type, what, &number));
    if (type == kU64 && number < 0)
      return invalid_argument(fmt::format("{} has a number above 2^63", what));
  }
  return {};
}

Status read_value(Cursor& cursor, const std::string& what, GgufValue* out) {
  uint32_t type = 0;
  RETURN_IF_ERROR(cursor.number(&type, what));
  if (type == kList) return read_list(cursor, what, out);
  if (type == kString) return cursor.string(&out->emplace<std::string>(), UINT64_MAX, what);
  if (value_size(type) == 0)
    return invalid_argument(fmt::format("{} has the unknown value type {}", what, type));
  if (is_float(type)) return read_float(cursor, type, what, &out->emplace<double>());
  int64_t number = 0;
  RETURN_IF_ERROR(read_integer(cursor, type, what, &number));
  if (type == kBool)
    *out = number != 0;
  else if (type == kU64 && number < 0)
    *out = static_cast<uint64_t>(number);
  else
    *out = number;
  return {};
}

// Name, sizes, type and (still relative to the data) offset.
Status read_tensor(Cursor& cursor, std::map<std::string, GgufTensor>* tensors) {
  std::string name;
  RETURN_IF_ERROR(cursor.string(&name, kMaxTensorNameBytes, "the name of a tensor"));
  const std::string what = "tensor " + quoted_name(name);
  GgufTensor tensor{};
  uint32_t rank = 0;
  RETURN_IF_ERROR(cursor.number(&rank, what));
  if (rank < 1 || rank > kMaxRank)
    return invalid_argument(
        fmt::format("{} has {} dimensions; expected 1 to {}", what, rank, kMaxRank));
  int64_t values = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t size = 0;
    RETURN_IF_ERROR(cursor.number(&size, what));
    if (size == 0 || size > INT64_MAX || __builtin_mul_overflow(values, size, &values))
      return invalid_argument(
          fmt::format("{}: size {} of dimension {} is 0, or the sizes multiply "
                      "to more than 2^63",
                      what, size, i));
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  uint64_t offset = 0;
  RETURN_IF_ERROR(cursor.number(&tensor.type, what));
  RETURN_IF_ERROR(cursor.number(&offset, what));
  if (offset > INT64_MAX)
    return invalid_argument(fmt::format("{} is said to be at {}, beyond the file", what, offset));
  tensor.offset = static_cast<int64_t>(offset);
  if (const GgufBlock* block = gguf_block(tensor.type)) {
    if (tensor.shape.back() % block->values != 0)
      return invalid_argument(fmt::format("{} has rows of {}; {} needs a multiple of {}", what,
                                          tensor.shape.back(), gguf_type_name(tensor.type),
                                          block->values));
    if (__builtin_mul_overflow(values / block->values, block->bytes, &tensor.bytes))
      return invalid_argument(fmt::format("{} would have more than 2^63 bytes", what));
  }
  if (!tensors->emplace(name, std::move(tensor)).second)
    return invalid_argument(fmt::format("{} is there twice", what));
  return {};
}

Result<int64_t> read_alignment(const std::map<std::string, GgufValue>& metadata) {
  const auto at = metadata.find("general.alignment");
  if (at == metadata.end()) return int64_t{32};
  const auto* number = std::get_if<int64_t>(&at->second);
  if (number == nullptr || *number < 1 || static_cast<uint64_t>(*number) > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*number)))
    return invalid_argument(
        fmt::format("metadata 'general.alignment' is {}; expected a power of "
                    "two up to {}",
                    number ? std::to_string(*number) : "no integer", kMaxAlignment));
  return *number;
}

// Makes offsets absolute. Tensors must be aligned, within the file, and follow each other without
// overlap or gap (as far as their sizes are known: those of types that are not supported are not).
Status place_tensors(int64_t header_end, int64_t alignment, int64_t file_bytes,
                     std::map<std::string, GgufTensor>* tensors) {
  const auto aligned = [&](int64_t at) { return (at + alignment - 1) / alignment * alignment; };
  const int64_t data_begin = aligned(header_end);
  std::vector<std::pair<const std::string*, GgufTensor*>> in_order;
  for (auto& [name, tensor] : *tensors) in_order.emplace_back(&name, &tensor);
  std::sort(in_order.begin(), in_order.end(),
            [](const auto& a, const auto& b) { return a.second->offset < b.second->offset; });
  const int64_t data_bytes = file_bytes - data_begin;
  int64_t end = 0;
  bool end_known = true;
  const std::string* previous = nullptr;
  for (const auto& [name, tensor] : in_order) {
    const std::string what = "tensor " + quoted_name(*name);
    const int64_t offset = tensor->offset;
    if (data_bytes < 0 || offset > data_bytes || tensor->bytes > data_bytes - offset)
      return invalid_argument(
          fmt::format("{} of {} bytes at {} is beyond the {} bytes of data in the file (cut "
                      "short?)",
                      what, tensor->bytes, offset, std::max<int64_t>(data_bytes, 0)));
    if (offset % alignment != 0)
      return invalid_argument(
          fmt::format("{} is at {}; expected a multiple of {}", what, offset, alignment));
    if (offset < end || (previous != nullptr && offset == end && !end_known))
      return invalid_argument(
          fmt::format("{} at {} is inside tensor {}", what, offset, quoted_name(*previous)));
    if (end_known && offset != aligned(end))
      return invalid_argument(fmt::format("{} is at {}; expected {}, behind what is before it",
                                          what, offset, aligned(end)));
    end = offset + tensor->bytes;
    end_known = gguf_block(tensor->type) != nullptr;
    previous = name;
    tensor->offset += data_begin;
  }
  return {};
}

}  // namespace

Result<GgufHeader> read_gguf_header(const FileReader& file) {
  Cursor cursor(file);
  char magic[4];
  uint32_t version = 0;
  uint64_t tensors = 0, entries = 0;
  RETURN_IF_ERROR(cursor.bytes(magic, 4, "the magic number"));
  if (std::memcmp(magic, "GGUF", 4) != 0)
    return invalid_argument(fmt::format("it begins with {}; a GGUF file begins with 'GGUF'",
                                        quoted_name(std::string_view(magic, 4))));
  RETURN_IF_ERROR(cursor.number(&version, "the version"));
  if (version == __builtin_bswap32(kVersion)) return unimplemented("it is a big-endian GGUF file");
  if (version != kVersion)
    return unimplemented(
        fmt::format("GGUF version {} is not supported; expected {}", version, kVersion));
  RETURN_IF_ERROR(cursor.number(&tensors, "the number of tensors"));
  RETURN_IF_ERROR(cursor.number(&entries, "the number of metadata entries"));
  if (entries > cursor.left() / kMinEntryBytes || tensors > cursor.left() / kMinTensorBytes)
    return invalid_argument(
        fmt::format("{} metadata entries and {} tensors are more than the {} "
                    "bytes left can hold",
                    entries, tensors, cursor.left()));
  GgufHeader header;
  for (uint64_t i = 0; i < entries; ++i) {
    std::string key;
    RETURN_IF_ERROR(cursor.string(&key, kMaxKeyBytes, "a metadata key"));
    const std::string what = "metadata " + quoted_name(key);
    const auto [at, is_new] = header.metadata.try_emplace(std::move(key));
    if (!is_new) return invalid_argument(fmt::format("{} is there twice", what));
    RETURN_IF_ERROR(read_value(cursor, what, &at->second));
  }
  for (uint64_t i = 0; i < tensors; ++i) RETURN_IF_ERROR(read_tensor(cursor, &header.tensors));
  ASSIGN_OR_RETURN(const int64_t alignment, read_alignment(header.metadata));
  RETURN_IF_ERROR(place_tensors(cursor.position(), alignment, file.size(), &header.tensors));
  return header;
}

}  // namespace deltad
