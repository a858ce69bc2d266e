// GGUF files once their header is read: metadata by key, rows on demand.
#include "io/gguf.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "io/gguf_header.h"
#include "io/quote.h"

namespace deltad {
namespace {

constexpr int64_t kStagingBytes = int64_t{1} << 20;

}  // namespace

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<FileReader> file, FileReader::open(path));
  return open(std::move(file));
}

Result<std::unique_ptr<GgufFile>> GgufFile::parse(std::string_view bytes, const std::string& name) {
  return open(FileReader::in_memory(name, std::string(bytes)));
}

Result<std::unique_ptr<GgufFile>> GgufFile::open(std::shared_ptr<FileReader> file) {
  Result<GgufHeader> header = read_gguf_header(*file);
  if (!header.ok()) return header.status().in(file->path());
  std::unique_ptr<GgufFile> gguf(new GgufFile);
  gguf->path_ = file->path();
  gguf->metadata_ = std::move(header->metadata);
  gguf->tensors_ = std::move(header->tensors);
  gguf->file_ = std::move(file);
  return gguf;
}

namespace {

// The value of `key` as a T, or an error that names the file, the key and what was expected.
template <typename T>
Result<T> value_of(const GgufFile& file, const std::string& key, const char* expected) {
  const auto at = file.metadata().find(key);
  if (at == file.metadata().end())
    return not_found(fmt::format("{} lacks the metadata {}; expected {}", file.path(),
                                 quoted_name(key), expected));
  if (const T* value = std::get_if<T>(&at->second)) return *value;
  return invalid_argument(fmt::format("{}: metadata {} has another type; expected {}", file.path(),
                                      quoted_name(key), expected));
}

}  // namespace

Result<std::string> GgufFile::string(const std::string& key) const {
  return value_of<std::string>(*this, key, "a string");
}

Result<int64_t> GgufFile::integer(const std::string& key) const {
  return value_of<int64_t>(*this, key, "an integer below 2^63");
}

Result<double> GgufFile::number(const std::string& key) const {
  const auto at = metadata_.find(key);
  if (at != metadata_.end()) {
    if (const auto* integer = std::get_if<int64_t>(&at->second))
      return static_cast<double>(*integer);
    if (const auto* integer = std::get_if<uint64_t>(&at->second))
      return static_cast<double>(*integer);
  }
  return value_of<double>(*this, key, "a number");
}

Result<std::vector<std::string>> GgufFile::strings(const std::string& key) const {
  return value_of<std::vector<std::string>>(*this, key, "a list of strings");
}

Result<std::vector<int64_t>> GgufFile::integers(const std::string& key) const {
  return value_of<std::vector<int64_t>>(*this, key, "a list of integers");
}

Status GgufFile::visit_rows(const GgufTensor& tensor, int64_t first, int64_t count,
                            const Visit& visit) const {
  const GgufBlock* block = gguf_block(tensor.type);
  if (block == nullptr)
    return unimplemented(
        fmt::format("{}: tensor type {} is not supported; supported are F32, F16, BF16, Q8_0, Q4_0 "
                    "and Q4_1",
                    path_, gguf_type_name(tensor.type)));
  const int64_t columns = tensor.columns();
  if (columns % block->values != 0)  // a vector in blocks: its rows cannot be taken apart
    return unimplemented(fmt::format("{}: a vector of type {} is not supported", path_,
                                     gguf_type_name(tensor.type)));
  if (first < 0 || count < 0 || first > tensor.rows() || count > tensor.rows() - first)
    return invalid_argument(fmt::format("{}: {} rows from {} are beyond a tensor's {} rows", path_,
                                        count, first, tensor.rows()));
  const int64_t blocks_a_row = columns / block->values;
  const int64_t end = (first + count) * blocks_a_row;
  const int64_t most = kStagingBytes / block->bytes;
  const int64_t whole_rows = most / blocks_a_row * blocks_a_row;
  const int64_t staged = std::min(whole_rows > 0 ? whole_rows : most, count * blocks_a_row);
  // 32-bit words, so that staging is aligned for fp32 values.
  const auto staging = std::make_unique_for_overwrite<uint32_t[]>(
      static_cast<size_t>(staged * block->bytes + 3) / 4);
  auto* raw = reinterpret_cast<uint8_t*>(staging.get());
  for (int64_t at = first * blocks_a_row; at < end;) {
    int64_t part = std::min(staged, end - at);
    // A row longer than the staging comes in pieces of its own.
    if (whole_rows == 0) part = std::min(part, blocks_a_row - at % blocks_a_row);
    RETURN_IF_ERROR(file_->read(tensor.offset + at * block->bytes, part * block->bytes, raw));
    visit(at * block->values, part * block->values, raw);
    at += part;
  }
  return {};
}

Status GgufFile::read_rows_f32(const GgufTensor& tensor, int64_t first, int64_t count,
                               float* out) const {
  const int64_t begin = first * tensor.columns();
  return visit_rows(tensor, first, count, [&](int64_t at, int64_t values, const uint8_t* raw) {
    gguf_dequantise(tensor.type, raw, values, out + (at - begin));
  });
}

}  // namespace deltad
