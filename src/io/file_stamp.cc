#include "io/file_stamp.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace deltad {
namespace {

namespace fs = std::filesystem;

int64_t nanoseconds(const timespec& t) { return t.tv_sec * int64_t{1000000000} + t.tv_nsec; }

bool add_entry(const std::string& path, struct stat* info, FileStamp* stamp) {
  struct stat link;
  if (lstat(path.c_str(), &link) != 0 || stat(path.c_str(), info) != 0) return false;
  if (S_ISLNK(link.st_mode)) add_to_stamp(link, stamp);
  add_to_stamp(*info, stamp);
  return true;
}

}  // namespace

void add_to_stamp(const struct stat& s, FileStamp* stamp) {
  for (const int64_t part :
       {static_cast<int64_t>(s.st_dev), static_cast<int64_t>(s.st_ino),
        static_cast<int64_t>(s.st_size), nanoseconds(s.st_mtim), nanoseconds(s.st_ctim)})
    stamp->push_back(part);
}

FileStamp stamp_of(const std::string& path) {
  FileStamp stamp;
  struct stat info;
  if (!add_entry(path, &info, &stamp)) return {};
  if (!S_ISDIR(info.st_mode)) return stamp;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().string());
  if (error) return {};
  std::sort(names.begin(), names.end());
  for (const std::string& name : names)
    if (!add_entry(name, &info, &stamp)) return {};
  return stamp;
}

}  // namespace deltad
