#include "backend/cuda/host_pool.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace deltad {

size_t HostPool::Pieces::bytes() const {
  size_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.bytes;
  return bytes;
}

void HostPool::Pieces::give_back() {
  if (pool_) pool_->give_back(pieces_);
  pool_ = nullptr;
  pieces_.clear();
}

void HostPool::add(PinnedMemory memory, const void* owner) {
  MutexLock lock(mutex_);
  bytes_ += memory.bytes();
  Part& part = parts_.emplace_back();
  part.owner = owner;
  if (memory.bytes() > 0) part.free[memory.at<std::byte>(0)] = memory.bytes();
  part.memory = std::move(memory);
}

// The smallest gap that holds the rest, else the largest: so many are filled whole, and few are
// cut.
void HostPool::take_from(Part& part, size_t* bytes, std::vector<Pieces::Piece>* out) {
  while (*bytes > 0 && !part.free.empty()) {
    auto best = part.free.begin();
    for (auto gap = std::next(best); gap != part.free.end(); ++gap) {
      const bool fits = gap->second >= *bytes, best_fits = best->second >= *bytes;
      if (fits ? !best_fits || gap->second < best->second
               : !best_fits && gap->second > best->second)
        best = gap;
    }
    const auto [at, room] = *best;
    const size_t taken = std::min(room, *bytes);
    part.free.erase(best);
    if (taken < room) part.free[at + taken] = room - taken;
    out->push_back({at, taken});
    *bytes -= taken;
  }
}

Result<HostPool::Pieces> HostPool::take(size_t bytes, const void* owner) {
  MutexLock lock(mutex_);
  if (bytes > bytes_ - used_)
    return resource_exhausted(fmt::format(
        "{} bytes of host memory for a variant: of {} are {} free", bytes, bytes_, bytes_ - used_));
  used_ += bytes;
  Pieces taken;
  taken.pool_ = shared_from_this();
  for (const bool own : {true, false})
    for (Part& part : parts_)
      if ((part.owner == owner) == own) take_from(part, &bytes, &taken.pieces_);
  CHECK(bytes == 0, "host memory is free that no part has");
  return taken;
}

void HostPool::give_back(const std::vector<Pieces::Piece>& pieces) {
  MutexLock lock(mutex_);
  for (const Pieces::Piece& piece : pieces) {
    used_ -= piece.bytes;
    const auto part = std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) {
      const auto* begin = p.memory.at<std::byte>(0);
      return piece.data >= begin && piece.data < begin + p.memory.bytes();
    });
    CHECK(part != parts_.end(), "host memory that no part has");
    auto gap = part->free.emplace(piece.data, piece.bytes).first;
    if (const auto next = std::next(gap);
        next != part->free.end() && gap->first + gap->second == next->first) {
      gap->second += next->second;
      part->free.erase(next);
    }
    if (gap == part->free.begin()) continue;
    if (const auto before = std::prev(gap); before->first + before->second == gap->first) {
      before->second += gap->second;
      part->free.erase(gap);
    }
  }
}

size_t HostPool::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

size_t HostPool::used() const {
  MutexLock lock(mutex_);
  return used_;
}

}  // namespace deltad
