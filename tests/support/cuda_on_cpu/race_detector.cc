#include "tests/support/cuda_on_cpu/race_detector.h"

#include <algorithm>

namespace deltad::emulator {

RaceDetector::RaceDetector(uint32_t threads, size_t shared_bytes, bool looking)
    : looking_(looking), threads_(threads) {
  if (!looking) return;
  clocks_.assign(size_t{threads} * width(), 0);
  fences_.assign(threads, 0);
  cells_ = std::vector<Cell>((shared_bytes + 3) / 4);
  for (uint32_t t = 0; t < threads; ++t) clock(t)[t] = 1;
}

void RaceDetector::add_reader(Cell& cell, uint32_t thread, bool updates) {
  const Reader self = {time(thread), static_cast<uint16_t>(thread), updates};
  const uint32_t* known = clock(thread);
  // A read that is ordered before this one needs no record: what is after this one is after it too.
  for (int i = 0; i < cell.readers; ++i) {
    if (cell.reader[i].updates == updates && known[cell.reader[i].thread] >= cell.reader[i].time) {
      cell.reader[i] = self;
      return;
    }
  }
  if (cell.readers < Cell::kInline) {
    cell.reader[cell.readers++] = self;
    return;
  }
  std::unique_ptr<uint32_t[]>& more = cell.more[updates];
  if (!cell.crowd[updates]) {
    if (more == nullptr)
      more = std::make_unique<uint32_t[]>(threads_);
    else
      std::fill_n(more.get(), threads_, 0);
    cell.crowd[updates] = true;
  }
  more[thread] = self.time;
}

uint32_t RaceDetector::unordered(const Cell& cell, uint32_t thread, bool updates) const {
  const uint32_t* known = clock(thread);
  for (int i = 0; i < cell.readers; ++i) {
    const Reader& r = cell.reader[i];
    if (r.updates == updates && r.thread != thread && known[r.thread] < r.time) return r.thread;
  }
  if (!cell.crowd[updates]) return kNobody;
  const uint32_t* times = cell.more[updates].get();
  // The thread's own time is known to it. All are looked at: that takes no branches.
  uint32_t late = 0;
  for (uint32_t t = 0; t < threads_; ++t) late |= std::max(known[t], times[t]) ^ known[t];
  for (uint32_t t = 0; late != 0 && t < threads_; ++t)
    if (known[t] < times[t]) return t;
  return kNobody;
}

RaceDetector::Answer RaceDetector::update(uint32_t thread, size_t offset) {
  if (!looking_) return {};
  Cell& cell = cells_[offset / 4];
  if (!cell.written) return {Verdict::kUninitialised, offset, 0, false};
  if (cell.in_flight) return {Verdict::kInFlight, offset, cell.writer, true};
  if (cell.writer != thread && clock(thread)[cell.writer] < cell.write_time) {
    return {Verdict::kRace, offset, cell.writer, true};
  }
  if (const uint32_t reader = unordered(cell, thread, false); reader != kNobody) {
    return {Verdict::kRace, offset, reader, false};
  }
  cell.updated = true;
  add_reader(cell, thread, true);
  return {};
}

RaceDetector::Answer RaceDetector::read(uint32_t thread, size_t offset, size_t bytes,
                                        uint32_t shown) {
  if (!looking_) return {};
  const uint32_t* known = clock(thread);
  for (size_t c = offset / 4; c * 4 < offset + bytes; ++c) {
    Cell& cell = cells_[c];
    if (!cell.written) return {Verdict::kUninitialised, c * 4, 0, false};
    if (cell.in_flight) return {Verdict::kInFlight, c * 4, cell.writer, true};
    if (cell.writer != thread && cell.writer != shown && known[cell.writer] < cell.write_time) {
      return {Verdict::kRace, c * 4, cell.writer, true};
    }
    const uint32_t other = cell.updated ? unordered(cell, thread, true) : kNobody;
    if (other != kNobody) return {Verdict::kRace, c * 4, other, true};
    add_reader(cell, thread, false);
  }
  return {};
}

RaceDetector::Answer RaceDetector::overwrite(uint32_t thread, size_t offset, size_t bytes,
                                             bool in_flight) {
  if (!looking_) return {};
  const uint32_t* known = clock(thread);
  for (size_t c = offset / 4; c * 4 < offset + bytes; ++c) {
    Cell& cell = cells_[c];
    if (cell.in_flight) return {Verdict::kInFlight, c * 4, cell.writer, true};
    if (cell.written && cell.writer != thread && known[cell.writer] < cell.write_time) {
      return {Verdict::kRace, c * 4, cell.writer, true};
    }
    for (const bool updates : {false, true}) {
      if (const uint32_t other = unordered(cell, thread, updates); other != kNobody) {
        return {Verdict::kRace, c * 4, other, updates};
      }
    }
    cell.crowd[false] = cell.crowd[true] = false;
    cell.written = true;
    cell.in_flight = in_flight;
    cell.updated = false;
    cell.by_engine = false;
    cell.readers = 0;
    cell.writer = static_cast<uint16_t>(thread);
    cell.write_time = known[thread];
  }
  return {};
}

RaceDetector::Answer RaceDetector::write(uint32_t thread, size_t offset, size_t bytes) {
  return overwrite(thread, offset, bytes, false);
}

RaceDetector::Answer RaceDetector::copy_starts(uint32_t thread, size_t offset, size_t bytes) {
  return overwrite(thread, offset, bytes, true);
}

void RaceDetector::copy_lands(uint32_t thread, size_t offset, size_t bytes) {
  if (!looking_) return;
  for (size_t c = offset / 4; c * 4 < offset + bytes; ++c) {
    cells_[c].in_flight = false;
    cells_[c].write_time = time(thread);
  }
}

uint32_t RaceDetector::bulk_copy_lands(size_t offset, size_t bytes, Clock& sum) {
  if (!looking_) return 0;
  if (sum.empty()) sum.assign(width(), 0);
  sum[engine_index()] = ++engine_time_;
  for (size_t c = offset / 4; c * 4 < offset + bytes; ++c) {
    cells_[c].in_flight = false;
    cells_[c].by_engine = true;
    cells_[c].writer = static_cast<uint16_t>(engine_index());
    cells_[c].write_time = engine_time_;
  }
  return engine_time_;
}

void RaceDetector::fence_proxy(uint32_t thread) {
  if (!looking_) return;
  fences_[thread] = time(thread);
  ++clock(thread)[thread];
}

bool RaceDetector::fenced(size_t offset, size_t bytes) const {
  if (!looking_) return true;
  for (size_t c = offset / 4; c * 4 < offset + bytes; ++c) {
    const Cell& cell = cells_[c];
    if (!cell.by_engine && cell.write_time > fences_[cell.writer]) return false;
  }
  return true;
}

void RaceDetector::give(uint32_t thread, Clock& sum) {
  if (!looking_) return;
  if (sum.empty()) sum.assign(width(), 0);
  uint32_t* own = clock(thread);
  for (uint32_t i = 0; i < width(); ++i) sum[i] = std::max(sum[i], own[i]);
  ++own[thread];
}

void RaceDetector::take(uint32_t thread, const Clock& sum) {
  if (!looking_) return;
  uint32_t* own = clock(thread);
  for (uint32_t i = 0; i < width(); ++i) own[i] = std::max(own[i], sum[i]);
}

void RaceDetector::acquire(uint32_t thread, uint32_t stamp) {
  if (!looking_) return;
  uint32_t& own = clock(thread)[stamp_index()];
  own = std::max(own, stamp);
}

}  // namespace deltad::emulator
