#include "io/bulk_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace deltad {
namespace {

// Of offsets, lengths and memory of direct reads: what every disk in use takes.
constexpr int64_t kBlock = 4096;
// One pread: long enough for a fast disk, but no longer than takes about this time, so that a
// cancellation is noticed within milliseconds on a slow one.
constexpr int64_t kLongestSlice = int64_t{4} << 20, kShortestSlice = int64_t{256} << 10;
constexpr double kReadSeconds = 0.010;
// Often enough for whoever cancels, seldom enough not to disturb those who compute.
constexpr auto kLookAgain = std::chrono::milliseconds(20);

int64_t round_down(int64_t n) { return n / kBlock * kBlock; }
int64_t round_up(int64_t n) { return round_down(n + kBlock - 1); }

// Whether most of the file is in the page cache, by looking at places spread over it. Where the
// system does not tell (a file of somebody else), it says yes.
bool is_cached(int fd, int64_t size) {
  constexpr int64_t kPlaces = 64;
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t pages = (size + page - 1) / page;
  void* map = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) return false;
  int64_t cached = 0, looked = 0;
  for (int64_t i = 0; i < kPlaces; ++i) {
    const int64_t at = pages * i / kPlaces;
    unsigned char present = 0;
    if (mincore(static_cast<char*>(map) + at * page, static_cast<size_t>(page), &present) != 0)
      continue;
    ++looked;
    cached += present & 1;
  }
  munmap(map, static_cast<size_t>(size));
  return 2 * cached > looked;
}

}  // namespace

Status check_cancelled(const std::atomic<bool>* flag, const std::string& path) {
  if (flag == nullptr || !flag->load(std::memory_order_relaxed)) return {};
  return cancelled(fmt::format("{}: loading was cancelled", path));
}

BulkReader::BulkReader(const FileReader& file, const BulkReadOptions& options)
    : file_(file), options_(options), slice_(kLongestSlice) {
  const int fd = file.descriptor();
  if (fd < 0 || !options.allow_direct || file.size() == 0 || is_cached(fd, file.size())) return;
  // The same file, whatever its path leads to by now.
  direct_fd_ = ::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
  direct_ = direct_fd_ >= 0;
}

BulkReader::~BulkReader() {
  if (direct_fd_ >= 0) ::close(direct_fd_);
}

Result<Arena> BulkReader::staging(int64_t bytes) {
  ArenaPlan plan;
  auto size = static_cast<size_t>(round_up(bytes) + kBlock);  // neither end may be at a block's
  // All of it in huge pages.
  if (size > kHugePageBytes / 2)
    size = (size + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  plan.add(size);
  ASSIGN_OR_RETURN(Arena arena, Arena::make(plan));
  RETURN_IF_ERROR(arena.populate());
  return arena;
}

Result<const uint8_t*> BulkReader::read(int64_t offset, int64_t bytes, const Arena& staging) {
  CHECK(offset >= 0 && bytes >= 0 && offset <= file_.size() && bytes <= file_.size() - offset,
        "a read beyond the file");
  const int64_t first = round_down(offset), end = round_up(offset + bytes);
  auto* out = staging.at({0, static_cast<size_t>(end - first)}).as<uint8_t>();
  for (int64_t at = first, count = 0; at < end; at += count) {
    // What is left goes along rather than making a short read of its own.
    const int64_t slice = slice_.load(std::memory_order_relaxed);
    count = end - at <= slice + slice / 2 ? end - at : slice;
    RETURN_IF_ERROR(wait_turn(count));
    RETURN_IF_ERROR(read_slice(at, count, out + (at - first)));
  }
  return static_cast<const uint8_t*>(out + (offset - first));
}

Status BulkReader::read_slice(int64_t offset, int64_t bytes, uint8_t* out) {
  const TimePoint start = Clock::real().now();
  if (direct()) {
    RETURN_IF_ERROR(read_direct(offset, bytes, out));
  } else {
    RETURN_IF_ERROR(file_.read(offset, std::min(bytes, file_.size() - offset), out));
  }
  if (bytes < kShortestSlice) return {};  // says nothing about the disk
  const double took = std::max(seconds(Clock::real().now() - start), 1e-6);
  const double fits = static_cast<double>(bytes) * std::min(kReadSeconds / took, 2.0);
  slice_ = std::clamp(round_down(static_cast<int64_t>(fits)), kShortestSlice, kLongestSlice);
  return {};
}

// Whole blocks, but for the file's end.
Status BulkReader::read_direct(int64_t offset, int64_t bytes, uint8_t* out) {
  int64_t done = 0;
  const int64_t wanted = std::min(bytes, file_.size() - offset);
  while (done < wanted) {
    const ssize_t got = ::pread(direct_fd_, out + done, static_cast<size_t>(bytes - done),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    // The file system refuses after all, or the disk wants another alignment.
    if (got < 0 && errno == EINVAL) direct_ = false;
    // Or the file was cut short: what is wrong, if anything, the ordinary read will say.
    if (got <= 0 || (done + got < wanted && got % kBlock != 0))
      return file_.read(offset + done, wanted - done, out + done);
    done += got;
  }
  return {};
}

Status BulkReader::wait_turn(int64_t bytes) const {
  RETURN_IF_ERROR(check_cancelled(options_.cancelled, file_.path()));
  if (options_.rate == nullptr) return {};
  const TimePoint turn = options_.rate->admit(bytes);
  Mutex mutex;
  CondVar nobody;  // a flag does not wake anyone, so it is looked at again and again
  MutexLock lock(mutex);
  for (TimePoint now = Clock::real().now(); now < turn; now = Clock::real().now()) {
    nobody.wait_until(mutex, std::min(turn, now + kLookAgain));
    Status status = check_cancelled(options_.cancelled, file_.path());
    if (!status.ok()) {
      options_.rate->give_back(bytes);
      return status;
    }
  }
  return {};
}

}  // namespace deltad
