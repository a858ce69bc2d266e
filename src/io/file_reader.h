// FileReader: pread on one open file, and small whole files. Thread-safe; owns the descriptor.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace deltad {

class FileReader {
 public:
  // Regular files only.
  static Result<std::shared_ptr<FileReader>> open(const std::string& path);
  // Content that is in memory already, under a name for messages (fuzzing and tests).
  static std::shared_ptr<FileReader> in_memory(const std::string& name, std::string content);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  int64_t size() const { return size_; }  // when opened
  int descriptor() const { return fd_; }  // -1: in memory
  const std::string& path() const { return path_; }
  // Exactly `bytes` bytes, or an error that names the file (cut short meanwhile, or unreadable).
  Status read(int64_t offset, int64_t bytes, void* out) const;
  // kUnavailable that says what happened, if since it was opened the file was written to, or its
  // path was removed or now leads to another file.
  Status unchanged() const;

 private:
  FileReader(std::string path, int fd, int64_t size)
      : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_;  // -1: the content is in memory_
  int64_t size_;
  timespec written_{};  // last, when opened
  std::string memory_;
};

bool file_exists(const std::string& path);
bool is_directory(const std::string& path);
// The whole file; kInvalidArgument if it is larger than max_bytes.
Result<std::string> read_file(const std::string& path, int64_t max_bytes = int64_t{64} << 20);

}  // namespace deltad
