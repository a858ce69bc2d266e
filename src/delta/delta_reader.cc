#include "delta/delta_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/seams.h"
#include "delta/digest.h"
#include "delta/float_codec.h"
#include "delta/low_rank_part.h"
#include "delta/read_plan.h"
#include "delta/work_list.h"
#include "io/bulk_reader.h"
#include "io/read_shares.h"

namespace deltad {
namespace {

// Whether all values are finite: no exponent is all ones. Without a branch, so that it runs at
// memory speed.
template <typename Bits>
bool all_finite(const void* data, int64_t count, Bits exponent) {
  const auto* values = static_cast<const Bits*>(data);
  Bits found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |= static_cast<Bits>((values[i] & exponent) == exponent);
  return found == 0;
}

bool all_finite(DType type, const void* data, int64_t count) {
  if (type == DType::kF32) return all_finite<uint32_t>(data, count, 0x7f800000u);
  if (type == DType::kF16) return all_finite<uint16_t>(data, count, 0x7c00u);
  return all_finite<uint16_t>(data, count, 0x7f80u);
}

// Staging memory, one piece a thread, used again and again.
// Between pieces of a load with a cap; short, because a cancellation waits for its end.
constexpr Duration kLongestNap = std::chrono::milliseconds(10);

class StagingPool {
 public:
  explicit StagingPool(int64_t bytes) : bytes_(bytes) {}
  Result<Arena> take() {
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        Arena staging = std::move(free_.back());
        free_.pop_back();
        return staging;
      }
    }
    return BulkReader::staging(bytes_);
  }
  void give_back(Arena staging) {
    MutexLock lock(mutex_);
    free_.push_back(std::move(staging));
  }

 private:
  const int64_t bytes_;
  Mutex mutex_;
  std::vector<Arena> free_ GUARDED_BY(mutex_);
};

class Reader {
 public:
  Reader(const DeltaFile& delta, const DeltaReadOptions& options)
      : delta_(delta),
        options_(options),
        plan_(plan_reading(delta.file(), options.rate ? kShortPieceBytes : kStretchBytes)),
        file_(delta.file().reader(), {options.cancelled, options.rate, true}),
        staging_(kStretchBytes) {
    for (const ReadPlan::Tensor& tensor : plan_.tensors) {
      const SafetensorsEntry& e = *tensor.entry;
      places_.push_back(place_of_tensor(*tensor.name));
      hashes_.push_back({e.dtype, e.shape, {}});
      hashes_.back().parts.resize(
          static_cast<size_t>((e.bytes + kDigestPartBytes - 1) / kDigestPartBytes));
    }
  }

  Status run() {
    const Status read = read_all();
    if (read.code() == Code::kCancelled) return read;
    RETURN_IF_ERROR(delta_.file().reader().unchanged());
    return read;
  }

 private:
  Status read_all() {
    std::vector<int64_t> sizes;
    for (const ReadChunk& chunk : plan_.chunks) sizes.push_back(chunk.bytes);
    RETURN_IF_ERROR(run_work_shares(
        read_shares(sizes, options_.ranks), options_.threads,
        [&](int64_t i) { return read_chunk(plan_.chunks[static_cast<size_t>(i)]); }));
    std::map<std::string, HashedTensor> hashes;
    for (size_t t = 0; t < hashes_.size(); ++t)
      hashes.emplace(*plan_.tensors[t].name, std::move(hashes_[t]));
    const std::string digest = variant_digest(hashes);
    if (digest != delta_.header().digest)
      return invalid_argument(
          fmt::format("{}: the file is damaged: its content has digest {}, expected {} as its "
                      "metadata says",
                      delta_.path(), digest, delta_.header().digest));
    return {};
  }

  Status read_chunk(const ReadChunk& chunk) {
    ASSIGN_OR_RETURN(Arena staging, staging_.take());
    TensorHasher hasher;
    for (int64_t i = chunk.first_stretch; i < chunk.end_stretch; ++i) {
      const ReadStretch& stretch = plan_.stretches[static_cast<size_t>(i)];
      ASSIGN_OR_RETURN(const uint8_t* data, file_.read(stretch.offset, stretch.bytes, staging));
      for (int64_t p = stretch.first_piece; p < stretch.end_piece; ++p) {
        const ReadPiece& piece = plan_.pieces[static_cast<size_t>(p)];
        RETURN_IF_ERROR(check_cancelled(options_.cancelled, delta_.path()));
        hash(piece, data, &hasher);
        RETURN_IF_ERROR(take_piece(piece, data));
        data += piece.bytes;
        // The disk is best read in long stretches; the work on them is spread over their time.
        if (options_.rate != nullptr)
          std::this_thread::sleep_for(std::min(options_.rate->time_of(piece.bytes), kLongestNap));
      }
    }
    staging_.give_back(std::move(staging));
    report(chunk.bytes);
    return {};
  }

  // Pieces of a part come to one hasher, in order; after the last, the part's hash is known.
  void hash(const ReadPiece& piece, const uint8_t* data, TensorHasher* hasher) {
    hasher->update(data, piece.bytes);
    const int64_t end = piece.begin + piece.bytes;
    if (end % kDigestPartBytes != 0 && end != entry(piece.tensor).bytes) return;
    hashes_[static_cast<size_t>(piece.tensor)]
        .parts[static_cast<size_t>(piece.begin / kDigestPartBytes)] = hasher->finish().front();
  }

  const SafetensorsEntry& entry(int32_t tensor) const {
    return *plan_.tensors[static_cast<size_t>(tensor)].entry;
  }
  const std::string& name(int32_t tensor) const {
    return *plan_.tensors[static_cast<size_t>(tensor)].name;
  }

  // Cuts a piece into units that can be handed on: 16 rows, or all of an α or of a low-rank part.
  // Units that lie across two pieces wait at the seam.
  Status take_piece(const ReadPiece& piece, const uint8_t* data) {
    const SafetensorsEntry& e = entry(piece.tensor);
    const TensorPlace& place = places_[static_cast<size_t>(piece.tensor)];
    std::vector<uint8_t> aligned;
    const auto element = dtype_size(e.dtype);
    if (reinterpret_cast<uintptr_t>(data) % element != 0) {  // the file may lay it out so
      aligned.assign(data, data + piece.bytes);
      data = aligned.data();
    }
    if (is_float(e.dtype)) RETURN_IF_ERROR(check_finite(piece, data));
    // Without a base only these have values left to check.
    if (options_.table == nullptr && place.role != TensorRole::kLowRank) return {};

    int64_t row_bytes = static_cast<int64_t>(element);
    if (e.shape.rank() == 2) row_bytes *= e.shape[1];
    const bool whole = place.role == TensorRole::kAlpha || place.role == TensorRole::kLowRank;
    const int64_t unit = whole ? e.bytes : kSinkRows * row_bytes;
    const int64_t begin = piece.begin, end = piece.begin + piece.bytes;
    // The first unit that begins in this piece, and the end of the last that ends in it.
    const int64_t first = std::min(end, (begin + unit - 1) / unit * unit);
    const int64_t last = end == e.bytes ? end : std::max(first, end / unit * unit);
    if (first > begin)
      RETURN_IF_ERROR(take_end(piece.tensor, unit, row_bytes, begin, first - begin, data));
    if (last > first)
      RETURN_IF_ERROR(take_rows(piece.tensor, first / row_bytes, (last - first) / row_bytes,
                                data + (first - begin)));
    if (end > last)
      RETURN_IF_ERROR(
          take_end(piece.tensor, unit, row_bytes, last, end - last, data + (last - begin)));
    return {};
  }

  // Bytes [begin, begin + bytes) of a unit that others have the rest of.
  Status take_end(int32_t tensor, int64_t unit, int64_t row_bytes, int64_t begin, int64_t bytes,
                  const uint8_t* data) {
    const int64_t index = begin / unit, at = index * unit;
    const int64_t unit_bytes = std::min(unit, entry(tensor).bytes - at);
    const std::vector<uint8_t> whole =
        seams_.add(tensor, index, unit_bytes, begin - at, data, bytes);
    if (whole.empty()) return {};
    return take_rows(tensor, at / row_bytes, unit_bytes / row_bytes, whole.data());
  }

  Status take_rows(int32_t tensor, int64_t first, int64_t count, const uint8_t* data) {
    const TensorPlace& place = places_[static_cast<size_t>(tensor)];
    if (place.role == TensorRole::kSign)
      RETURN_IF_ERROR(check_padding(name(tensor), place, first, count, data));
    if (place.role == TensorRole::kLowRank) return take_low_rank(tensor, place.weight, data);
    if (options_.sink == nullptr) return {};
    if (place.role == TensorRole::kSign)
      return options_.sink->sign_rows(place.weight, place.level, first, count, data);
    if (place.role == TensorRole::kAlpha)
      return options_.sink->alpha(place.weight, place.level, count,
                                  reinterpret_cast<const float*>(data));
    return options_.sink->dense_rows(place.weight, first, count, entry(tensor).dtype, data);
  }

  Status take_low_rank(int32_t tensor, const std::string& weight, const uint8_t* data) {
    const Shape& shape = entry(tensor).shape;
    const auto failed = [&](const Status& status) {
      return status.in(fmt::format("{}: tensor '{}'", delta_.path(), name(tensor)));
    };
    if (options_.table == nullptr) {
      const Status status = check_low_rank_scales(data, shape[0], shape[1]);
      return status.ok() ? status : failed(status);
    }
    const WeightTable::Place& at = options_.table->by_name.at(weight);
    const WeightSpec& spec = options_.table->specs[static_cast<size_t>(at.weight)];
    const auto factors = unpack_low_rank(data, shape[0], spec.columns,
                                         spec.parts[static_cast<size_t>(at.part)].rows);
    if (!factors.ok()) return failed(factors.status());
    return options_.sink == nullptr ? Status() : options_.sink->low_rank(weight, *factors);
  }

  Status check_finite(const ReadPiece& piece, const uint8_t* data) const {
    const DType type = entry(piece.tensor).dtype;
    const auto element = static_cast<int64_t>(dtype_size(type));
    const int64_t count = piece.bytes / element;
    if (all_finite(type, data, count)) return {};
    float value = 0;
    for (int64_t i = 0; i < count && std::isfinite(value); ++i)
      widen(type, 1, data + i * element, &value);
    return invalid_argument(fmt::format("{}: tensor '{}': a value is {}, expected finite numbers",
                                        delta_.path(), name(piece.tensor), value));
  }

  // bits [count, ⌈d_in/8⌉]: bits past column d_in must be 0.
  Status check_padding(const std::string& tensor, const TensorPlace& place, int64_t first,
                       int64_t count, const uint8_t* bits) const {
    const WeightTable::Place& at = options_.table->by_name.at(place.weight);
    const int64_t columns = options_.table->specs[static_cast<size_t>(at.weight)].columns;
    if (columns % 8 == 0) return {};
    const int64_t row_bytes = (columns + 7) / 8;
    for (int64_t r = 0; r < count; ++r) {
      if (bits[(r + 1) * row_bytes - 1] >> (columns % 8) != 0)
        return invalid_argument(
            fmt::format("{}: tensor '{}': row {} has padding bits set, expected 0 beyond column {}",
                        delta_.path(), tensor, first + r, columns));
    }
    return {};
  }

  void report(int64_t bytes) {
    if (!options_.progress) return;
    options_.progress(done_.fetch_add(bytes, std::memory_order_relaxed) + bytes, plan_.bytes);
  }

  const DeltaFile& delta_;
  const DeltaReadOptions& options_;
  const ReadPlan plan_;
  BulkReader file_;
  StagingPool staging_;
  std::vector<TensorPlace> places_;   // index: tensor of the plan
  std::vector<HashedTensor> hashes_;  // the same; each part is written by one thread
  Seams seams_;
  std::atomic<int64_t> done_{0};
};

}  // namespace

Status read_delta(const DeltaFile& delta, const DeltaReadOptions& options) {
  return Reader(delta, options).run();
}

}  // namespace deltad
