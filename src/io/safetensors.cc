// Reading safetensors files. The header's checks are in safetensors_header.cc.
#include "io/safetensors.h"

#include <fmt/core.h>

#include <utility>

namespace deltad {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's limit

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(std::shared_ptr<FileReader> file, FileReader::open(path));
  return open(std::move(file));
}

Result<SafetensorsFile> SafetensorsFile::open(std::shared_ptr<FileReader> file) {
  const std::string& path = file->path();
  if (file->size() < kLengthBytes)
    return invalid_argument(
        fmt::format("{} has {} bytes; a safetensors file begins with 8 bytes of header length",
                    path, file->size()));
  uint8_t raw[kLengthBytes];
  RETURN_IF_ERROR(file->read(0, kLengthBytes, raw));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[i];
  if (length > kMaxHeaderBytes)
    return invalid_argument(
        fmt::format("{}: the header's length is {}; at most {} are allowed (is "
                    "it a safetensors file?)",
                    path, length, kMaxHeaderBytes));
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  if (data_begin > file->size())
    return invalid_argument(
        fmt::format("{}: the header's length is {}, beyond the file's {} bytes (cut short?)", path,
                    length, file->size()));
  std::string header(static_cast<size_t>(length), '\0');
  RETURN_IF_ERROR(file->read(kLengthBytes, static_cast<int64_t>(length), header.data()));

  SafetensorsFile result;
  result.path_ = path;
  const Status status =
      parse_header(header, data_begin, file->size(), &result.metadata_, &result.tensors_);
  if (!status.ok()) return status.in(path);
  result.file_ = std::move(file);
  return result;
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? nullptr : &at->second;
}

Status SafetensorsFile::read(const SafetensorsEntry& entry, int64_t offset, int64_t count,
                             void* out) const {
  CHECK(offset >= 0 && count >= 0 && offset <= entry.bytes && count <= entry.bytes - offset,
        "read beyond a tensor");
  return file_->read(entry.offset + offset, count, out);
}

}  // namespace deltad
