// Writing aside and renaming.
#include "io/aside_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace deltad {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
}

// What an unnamed file is known by until it has a name.
std::string link_to(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

// A file without a name, which a killed process cannot leave behind; −1 where there is no such
// thing.
int open_unnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0 || ::access(link_to(fd).c_str(), F_OK) == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

Result<std::unique_ptr<AsideFile>> AsideFile::create(const std::string& path, int64_t bytes) {
  const std::string aside = fmt::format("{}.tmp-{}", path, ::getpid());
  int fd = open_unnamed(folder_of(path));
  const bool named = fd < 0;
  if (named)
    fd = ::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) {
    const int error = errno;
    const std::string message =
        fmt::format("cannot write {}: {}", path, std::generic_category().message(error));
    return error == ENOENT || error == ENOTDIR ? not_found(message) : internal_error(message);
  }
  auto file = std::unique_ptr<AsideFile>(new AsideFile(path, aside, fd, named));
  if (bytes > 0 && ::fallocate(fd, 0, 0, bytes) != 0) {
    // Some file systems cannot reserve; there the length alone is set.
    if (errno != EOPNOTSUPP && errno != ENOSYS) return file->failed("reserve space for", errno);
    if (::ftruncate(fd, bytes) != 0) return file->failed("reserve space for", errno);
  }
  return file;
}

AsideFile::~AsideFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (named_) ::unlink(aside_.c_str());
}

Status AsideFile::failed(const char* what, int error) const {
  return internal_error(
      fmt::format("cannot {} {}: {}", what, path_, std::generic_category().message(error)));
}

Status AsideFile::write(int64_t offset, const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const size_t part = static_cast<size_t>(std::min(bytes, int64_t{1} << 30));
    const ssize_t done = ::pwrite(fd_, from, part, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return failed("write", done < 0 ? errno : EIO);
    from += done;
    offset += done;
    bytes -= done;
  }
  return {};
}

Status AsideFile::commit() {
  if (::fsync(fd_) != 0) return failed("write", errno);
  if (!named_) {
    ::unlink(aside_.c_str());  // one that a killed process of the same number left
    if (::linkat(AT_FDCWD, link_to(fd_).c_str(), AT_FDCWD, aside_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return failed("put in place", errno);
    named_ = true;
  }
  if (::close(std::exchange(fd_, -1)) != 0) {
    const int error = errno;
    ::unlink(aside_.c_str());
    return failed("write", error);
  }
  if (::rename(aside_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    ::unlink(aside_.c_str());
    return failed("put in place", error);
  }
  // The new name itself must survive a power cut as well. The file is whole and in place whatever
  // comes of it.
  const int dir = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    ::fsync(dir);
    ::close(dir);
  }
  return {};
}

}  // namespace deltad
