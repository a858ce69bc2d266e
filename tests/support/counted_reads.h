// Counts what the program asks the system for: this file's pread stands before the C library's. For
// one source file of a program.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "io/safetensors.h"

namespace deltad::testing {

struct CountedRead {
  pid_t thread;
  ino_t file;
  int64_t begin, end;
};
inline Mutex reads_mutex;
inline std::vector<CountedRead> counted_reads GUARDED_BY(reads_mutex);
inline bool counting_reads GUARDED_BY(reads_mutex) = false;

// A variant file is read in blocks of the disk, so that where two reads meet they may share one.
constexpr int64_t kDiskBlock = 4096;

template <typename Work>
void count_reads(const Work& work) {
  {
    MutexLock lock(reads_mutex);
    counted_reads.clear();
    counting_reads = true;
  }
  work();
  MutexLock lock(reads_mutex);
  counting_reads = false;
}

// What was read of one file from `begin` on, where the tensors are, in the file's order.
inline std::vector<CountedRead> reads_of(const std::string& path, int64_t begin) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  std::vector<CountedRead> out;
  MutexLock lock(reads_mutex);
  for (const CountedRead& read : counted_reads)
    if (read.file == status.st_ino && read.end > begin)
      out.push_back({read.thread, read.file, std::max(read.begin, begin), read.end});
  std::sort(out.begin(), out.end(), [](const CountedRead& x, const CountedRead& y) {
    return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  });
  return out;
}

inline int64_t data_begin(const std::string& path) {
  const auto file = SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok());
  int64_t begin = INT64_MAX;
  for (const auto& [name, entry] : file->tensors()) begin = std::min(begin, entry.offset);
  return begin;
}

}  // namespace deltad::testing

extern "C" ssize_t pread(int fd, void* to, size_t bytes, off_t offset) {
  const ssize_t got = syscall(SYS_pread64, fd, to, bytes, offset);
  namespace t = deltad::testing;
  deltad::MutexLock lock(t::reads_mutex);
  struct stat status {};
  if (t::counting_reads && got > 0 && fstat(fd, &status) == 0)
    t::counted_reads.push_back(
        {static_cast<pid_t>(syscall(SYS_gettid)), status.st_ino, offset, offset + got});
  return got;
}
