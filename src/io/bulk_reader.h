// BulkReader: long stretches of one file for several threads at once, each into staging memory of
// its own. Reads past the page cache (O_DIRECT) unless the file is in it already: the disk then
// writes straight into the staging memory, and loading a variant does not push what others need out
// of the cache. Where the file system refuses that, it reads as usual. Any thread; the FileReader
// outlives it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "io/file_reader.h"
#include "io/rate_limit.h"
#include "tensor/arena.h"

namespace deltad {

// kCancelled, with the file's name, if the flag is there and set.
Status check_cancelled(const std::atomic<bool>* cancelled, const std::string& path);

struct BulkReadOptions {
  const std::atomic<bool>* cancelled = nullptr;  // looked at before each slice; kCancelled
  RateLimit* rate = nullptr;
  bool allow_direct = true;
};

class BulkReader {
 public:
  BulkReader(const FileReader& file, const BulkReadOptions& options);
  ~BulkReader();
  BulkReader(const BulkReader&) = delete;
  BulkReader& operator=(const BulkReader&) = delete;

  // Staging memory for reads of up to `bytes` bytes: in huge pages, so that a disk writes a long
  // stretch in one go (measured on a virtual disk: 4.0 instead of 1.7 GB/s).
  static Result<Arena> staging(int64_t bytes);
  // Bytes [offset, offset + bytes) of the file, somewhere in the staging memory. Exactly these, or
  // an error that names the file.
  Result<const uint8_t*> read(int64_t offset, int64_t bytes, const Arena& staging);

  // Whether it still reads past the page cache.
  bool direct() const { return direct_.load(std::memory_order_relaxed); }

 private:
  Status wait_turn(int64_t bytes) const;
  Status read_slice(int64_t offset, int64_t bytes, uint8_t* out);
  Status read_direct(int64_t offset, int64_t bytes, uint8_t* out);

  const FileReader& file_;
  const BulkReadOptions options_;
  int direct_fd_ = -1;
  std::atomic<bool> direct_{false};
  std::atomic<int64_t> slice_;  // bytes of one pread
};

}  // namespace deltad
