// AsideFile: a file that is written aside and takes the place of `path` only when it is whole, so
// that a full disk or a crash leaves the old file as it was. It has no name until then, so that
// nothing is left of one whose process is killed; where the file system cannot do that, it is
// path.tmp-PID, and removed if it goes away uncommitted. write() may be called by several threads
// at once, the rest by the owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace deltad {

class AsideFile {
 public:
  // Reserves the disk space now, so that a full disk is known before the work begins.
  static Result<std::unique_ptr<AsideFile>> create(const std::string& path, int64_t bytes);
  ~AsideFile();
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;

  Status write(int64_t offset, const void* data, int64_t bytes);
  // fsync, rename, fsync of the folder.
  Status commit();

 private:
  AsideFile(std::string path, std::string aside, int fd, bool named)
      : path_(std::move(path)), aside_(std::move(aside)), fd_(fd), named_(named) {}
  Status failed(const char* what, int error) const;

  const std::string path_, aside_;
  int fd_;  // -1 once committed
  bool named_;
};

}  // namespace deltad
