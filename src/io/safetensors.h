// Safetensors files (format of the Hugging Face library): 8 bytes little-endian header length N, N
// bytes of JSON
// {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {string: string}},
// then the data. Reader: checks the header completely (lengths, overlaps, gaps, dtypes, shapes
// against offsets), reads data on demand. Writer: streams tensors in the declared order to a file
// written aside and renamed when whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/file_reader.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace deltad {

struct SafetensorsEntry {
  DType dtype;
  Shape shape;
  int64_t offset;  // in the file
  int64_t bytes;
};

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);
  static Result<SafetensorsFile> open(std::shared_ptr<FileReader> file);

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, SafetensorsEntry>& tensors() const {
    return tensors_;
  }  // byte order of names
  const SafetensorsEntry* find(const std::string& name) const;
  const FileReader& reader() const { return *file_; }
  // Bytes [offset, offset + count) of a tensor's data. Thread-safe.
  Status read(const SafetensorsEntry& entry, int64_t offset, int64_t count, void* out) const;

  // Parses and checks a header for a file of file_bytes bytes whose data begins at data_begin.
  static Status parse_header(std::string_view json, int64_t data_begin, int64_t file_bytes,
                             std::map<std::string, std::string>* metadata,
                             std::map<std::string, SafetensorsEntry>* tensors);

 private:
  std::string path_;
  std::shared_ptr<FileReader> file_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, SafetensorsEntry> tensors_;
};

class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
  };
  // Tensors are laid out in the given order. The file appears under `path` only by finish()
  // (io/aside_file.h). Metadata may be
  // completed before finish() as long as the values have the lengths declared here (a digest is
  // written last).
  static Result<std::unique_ptr<SafetensorsWriter>> create(
      const std::string& path, const std::map<std::string, std::string>& metadata,
      const std::vector<Tensor>& tensors);
  virtual ~SafetensorsWriter() = default;
  // Bytes of tensor `name` at `offset`. Any order, any thread, each byte once.
  virtual Status write(const std::string& name, int64_t offset, const void* data,
                       int64_t bytes) = 0;
  virtual Status set_metadata(const std::string& key,
                              const std::string& value) = 0;  // same length as declared
  virtual Status
  finish() = 0;  // fsync and rename; kInternal with the system's reason (disk full …)
};

// Writes a small file aside and renames it.
Status write_file(const std::string& path, std::string_view content);

}  // namespace deltad
