#include "io/durable_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/file_reader.h"

namespace deltad {
namespace {

namespace fs = std::filesystem;

class RealFolder final : public DurableFolder {
 public:
  RealFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  ~RealFolder() override { ::close(lock_); }
  RealFolder(const RealFolder&) = delete;
  RealFolder& operator=(const RealFolder&) = delete;

  const std::string& path() const override { return path_; }

  Status make_folder(const std::string& name) override {
    if (::mkdir(at(name).c_str(), 0777) == 0 || errno == EEXIST) return {};
    return failed("make", name, errno);
  }

  Result<std::vector<std::string>> list(const std::string& name) override {
    std::vector<std::string> found;
    std::error_code error;
    for (fs::directory_iterator it(at(name), error), end; !error && it != end; it.increment(error))
      if (!it->is_directory(error)) found.push_back(it->path().filename().string());
    if (error) return failed("list", name, error.value());
    std::sort(found.begin(), found.end());
    return found;
  }

  Result<std::string> read(const std::string& name) override {
    if (!file_exists(at(name))) return not_found(fmt::format("{}: no such file", at(name)));
    return read_file(at(name), kMaxFileBytes);
  }

  Status write(const std::string& name, std::string_view content) override {
    const int fd =
        ::open(at(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return failed("write", name, errno);
    Status result;
    while (!content.empty() && result.ok()) {
      const ssize_t done = ::write(fd, content.data(), content.size());
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0)
        result = failed("write", name, done < 0 ? errno : EIO);
      else
        content.remove_prefix(static_cast<size_t>(done));
    }
    if (::close(fd) != 0 && result.ok()) result = failed("write", name, errno);
    return result;
  }

  Status sync(const std::string& name) override { return sync_path(name, O_RDONLY); }

  Status rename(const std::string& from, const std::string& to) override {
    if (std::rename(at(from).c_str(), at(to).c_str()) == 0) return {};
    return failed("put in place", to, errno);
  }

  Status sync_folder(const std::string& name) override {
    return sync_path(name, O_RDONLY | O_DIRECTORY);
  }

  Status remove(const std::string& name) override {
    if (::unlink(at(name).c_str()) == 0 || errno == ENOENT) return {};
    return failed("remove", name, errno);
  }

 private:
  static constexpr int64_t kMaxFileBytes = int64_t{256} << 20;  // of what is read whole

  std::string at(const std::string& name) const {
    return name.empty() ? path_ : path_ + "/" + name;
  }

  Status sync_path(const std::string& name, int flags) {
    const int fd = ::open(at(name).c_str(), flags | O_CLOEXEC);
    if (fd < 0) return failed("sync", name, errno);
    const int error = ::fsync(fd) == 0 ? 0 : errno;
    ::close(fd);
    return error == 0 ? Status() : failed("sync", name, error);
  }

  Status failed(const char* what, const std::string& name, int error) const {
    return internal_error(
        fmt::format("cannot {} {}: {}", what, at(name), std::generic_category().message(error)));
  }

  const std::string path_;
  const int lock_;  // the folder itself, locked; the kernel lets go of it if the process dies
};

}  // namespace

Result<std::unique_ptr<DurableFolder>> DurableFolder::open(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    return internal_error(fmt::format("{}: cannot make the folder: {}", path, error.message()));
  if (!is_directory(path)) return invalid_argument(fmt::format("{}: not a folder", path));
  const int lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    const int why = errno;
    if (lock >= 0) ::close(lock);
    if (why == EWOULDBLOCK)
      return conflict(fmt::format("{}: another process has this folder open", path));
    return internal_error(
        fmt::format("{}: cannot lock it: {}", path, std::generic_category().message(why)));
  }
  return std::unique_ptr<DurableFolder>(std::make_unique<RealFolder>(path, lock));
}

}  // namespace deltad
