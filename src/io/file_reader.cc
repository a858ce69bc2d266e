// Reading files with pread: no shared file position, so that loader threads share one descriptor.
#include "io/file_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace deltad {
namespace {

std::string system_reason(int error) { return std::generic_category().message(error); }

// One pread is at most this long: Linux cuts longer ones anyway (at 2 GiB − 4 KiB).
constexpr int64_t kLongestRead = int64_t{1} << 30;

}  // namespace

Result<std::shared_ptr<FileReader>> FileReader::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO that nobody writes to would hang; for regular files it means
  // nothing.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    const std::string message = fmt::format("cannot open {}: {}", path, system_reason(error));
    if (error == ENOENT || error == ENOTDIR) return not_found(message);
    return error == EMFILE || error == ENFILE || error == ENOMEM ? internal_error(message)
                                                                 : invalid_argument(message);
  }
  // make_shared cannot call the private constructor.
  auto file = std::shared_ptr<FileReader>(new FileReader(path, fd, 0));
  struct stat info;
  if (fstat(fd, &info) != 0)
    return internal_error(fmt::format("cannot read {}: {}", path, system_reason(errno)));
  if (!S_ISREG(info.st_mode))
    return invalid_argument(
        fmt::format("{} is not a file{}", path, S_ISDIR(info.st_mode) ? " but a folder" : ""));
  file->size_ = info.st_size;
  file->written_ = info.st_mtim;
  return file;
}

std::shared_ptr<FileReader> FileReader::in_memory(const std::string& name, std::string content) {
  auto file =
      std::shared_ptr<FileReader>(new FileReader(name, -1, static_cast<int64_t>(content.size())));
  file->memory_ = std::move(content);
  return file;
}

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

Status FileReader::read(int64_t offset, int64_t bytes, void* out) const {
  if (offset < 0 || bytes < 0 || offset > size_ || bytes > size_ - offset)
    return invalid_argument(fmt::format("{}: {} bytes at {} are beyond the file's {} bytes", path_,
                                        bytes, offset, size_));
  char* to = static_cast<char*>(out);
  if (fd_ < 0) {
    if (bytes > 0) std::memcpy(to, memory_.data() + offset, static_cast<size_t>(bytes));
    return {};
  }
  while (bytes > 0) {
    const ssize_t got =
        ::pread(fd_, to, static_cast<size_t>(std::min(bytes, kLongestRead)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return internal_error(
          fmt::format("cannot read {} at {}: {}", path_, offset, system_reason(errno)));
    if (got == 0)
      return invalid_argument(
          fmt::format("{} was cut short to {} bytes while it was read; it had "
                      "{} when opened",
                      path_, offset, size_));
    to += got;
    offset += got;
    bytes -= got;
  }
  return {};
}

Status FileReader::unchanged() const {
  if (fd_ < 0) return {};
  struct stat now, there;
  if (fstat(fd_, &now) != 0)
    return internal_error(fmt::format("cannot read {}: {}", path_, system_reason(errno)));
  if (now.st_size != size_)
    return unavailable(fmt::format("{} was changed while it was read: it had {} bytes, now {}",
                                   path_, size_, now.st_size));
  if (now.st_mtim.tv_sec != written_.tv_sec || now.st_mtim.tv_nsec != written_.tv_nsec)
    return unavailable(fmt::format("{} was changed while it was read: it was written to", path_));
  if (stat(path_.c_str(), &there) != 0)
    return unavailable(fmt::format("{} was removed while it was read", path_));
  if (there.st_dev != now.st_dev || there.st_ino != now.st_ino)
    return unavailable(fmt::format("{} was replaced by another file while it was read", path_));
  return {};
}

bool file_exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_directory(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::string> read_file(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const std::shared_ptr<FileReader> file, FileReader::open(path));
  if (file->size() > max_bytes)
    return invalid_argument(
        fmt::format("{} has {} bytes; at most {} were expected", path, file->size(), max_bytes));
  std::string content(static_cast<size_t>(file->size()), '\0');
  RETURN_IF_ERROR(file->read(0, file->size(), content.data()));
  return content;
}

}  // namespace deltad
