// Writing safetensors files: the data as it comes, at its place; the header last, when the digest
// in its metadata is known. Everything goes to a file aside (aside_file.h).
#include <fmt/core.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/aside_file.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

// A JSON string, quotes included. Invalid UTF-8 becomes U+FFFD: a file's name may hold any bytes.
std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

class Writer final : public SafetensorsWriter {
 public:
  struct Place {
    int64_t offset;  // in the data
    int64_t bytes;
    std::atomic<int64_t> written{0};
  };

  Status lay_out(const std::map<std::string, std::string>& metadata,
                 const std::vector<Tensor>& tensors) {
    metadata_ = metadata;
    tensors_ = tensors;
    for (const Tensor& tensor : tensors_) {
      // Names are looked up again byte by byte, so that they cannot be repaired as metadata is.
      if (tensor.name == "__metadata__" || tensor.name.empty())
        return invalid_argument(fmt::format("no tensor can be named '{}'", tensor.name));
      int64_t bytes = static_cast<int64_t>(dtype_size(tensor.dtype));
      for (int i = 0; i < tensor.shape.rank(); ++i)
        if (tensor.shape[i] < 0 || __builtin_mul_overflow(bytes, tensor.shape[i], &bytes))
          return invalid_argument(
              fmt::format("tensor {} cannot have the shape {}", tensor.name, tensor.shape.str()));
      const auto [at, is_new] = places_.try_emplace(tensor.name);
      if (!is_new) return invalid_argument(fmt::format("tensor {} is there twice", tensor.name));
      at->second.offset = data_bytes_;
      at->second.bytes = bytes;
      if (__builtin_add_overflow(data_bytes_, bytes, &data_bytes_))
        return invalid_argument("the tensors have more than 2^63 bytes");
    }
    ASSIGN_OR_RETURN(const std::string header, make_header());
    header_bytes_ = static_cast<int64_t>(header.size());
    return {};
  }

  Status open(const std::string& path) {
    path_ = path;
    ASSIGN_OR_RETURN(file_, AsideFile::create(path, header_bytes_ + data_bytes_));
    return {};
  }

  Status write(const std::string& name, int64_t offset, const void* data, int64_t bytes) override {
    const auto at = places_.find(name);
    CHECK(at != places_.end(), "write of a tensor that was not declared");
    Place& place = at->second;
    CHECK(offset >= 0 && bytes >= 0 && offset <= place.bytes && bytes <= place.bytes - offset,
          "write beyond a tensor");
    RETURN_IF_ERROR(file_->write(header_bytes_ + place.offset + offset, data, bytes));
    place.written += bytes;
    return {};
  }

  Status set_metadata(const std::string& key, const std::string& value) override {
    const auto at = metadata_.find(key);
    CHECK(at != metadata_.end(), "set_metadata of a key that was not declared");
    CHECK(json_string(at->second).size() == json_string(value).size(),
          "set_metadata with another length than declared");
    at->second = value;
    return {};
  }

  Status finish() override {
    for (const Tensor& tensor : tensors_) {
      const Place& place = places_.at(tensor.name);
      if (place.written != place.bytes)
        return internal_error(fmt::format("{}: {} of the {} bytes of tensor {} were written", path_,
                                          place.written.load(), place.bytes, tensor.name));
    }
    ASSIGN_OR_RETURN(const std::string header, make_header());
    RETURN_IF_ERROR(file_->write(0, header.data(), static_cast<int64_t>(header.size())));
    return file_->commit();
  }

 private:
  // Length and JSON, padded with spaces to a multiple of 8.
  Result<std::string> make_header() const {
    std::string json = "{";
    if (!metadata_.empty()) {
      json += "\"__metadata__\":{";
      for (const auto& [key, value] : metadata_)
        json += fmt::format("{}{}:{}", json.back() == '{' ? "" : ",", json_string(key),
                            json_string(value));
      json += "}";
    }
    for (const Tensor& tensor : tensors_) {
      std::string name;
      try {
        name = nlohmann::json(tensor.name).dump();
      } catch (const nlohmann::json::exception&) {
        return invalid_argument("the name of a tensor is not valid UTF-8");
      }
      std::string sizes;
      for (int i = 0; i < tensor.shape.rank(); ++i)
        sizes += fmt::format("{}{}", i ? "," : "", tensor.shape[i]);
      const Place& place = places_.at(tensor.name);
      json += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          json.back() == '{' ? "" : ",", name, dtype_name(tensor.dtype), sizes,
                          place.offset, place.offset + place.bytes);
    }
    json += "}";
    json.append((8 - json.size() % 8) % 8, ' ');
    std::string header(8, '\0');
    for (size_t i = 0; i < 8; ++i) header[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
    return header + json;
  }

  std::string path_;
  std::unique_ptr<AsideFile> file_;
  std::map<std::string, std::string> metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string, Place> places_;
  int64_t header_bytes_ = 0, data_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(
    const std::string& path, const std::map<std::string, std::string>& metadata,
    const std::vector<Tensor>& tensors) {
  auto writer = std::make_unique<Writer>();
  const Status status = writer->lay_out(metadata, tensors);
  if (!status.ok()) return status.in(path);
  RETURN_IF_ERROR(writer->open(path));
  return std::unique_ptr<SafetensorsWriter>(std::move(writer));
}

Status write_file(const std::string& path, std::string_view content) {
  const int64_t bytes = static_cast<int64_t>(content.size());
  ASSIGN_OR_RETURN(const std::unique_ptr<AsideFile> file, AsideFile::create(path, bytes));
  RETURN_IF_ERROR(file->write(0, content.data(), bytes));
  return file->commit();
}

}  // namespace deltad
