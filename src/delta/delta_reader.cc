#include "delta/delta_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "delta/digest.h"
#include "delta/float_codec.h"
#include "delta/work_list.h"

namespace deltad {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;

class Reader {
 public:
  Reader(const DeltaFile& delta, const DeltaReadOptions& options)
      : delta_(delta), options_(options) {
    for (const auto& [name, entry] : delta.file().tensors()) {
      tensors_.emplace_back(name, &entry);
      total_ += entry.bytes;
    }
  }

  Status run() {
    RETURN_IF_ERROR(
        run_work_list(static_cast<int64_t>(tensors_.size()), options_.threads, [&](int64_t i) {
          return read_tensor(tensors_[static_cast<size_t>(i)].first,
                             *tensors_[static_cast<size_t>(i)].second);
        }));
    MutexLock lock(mutex_);
    const std::string digest = variant_digest(hashes_);
    if (digest != delta_.header().digest)
      return invalid_argument(
          fmt::format("{}: the file is damaged: its content has digest {}, expected {} as its "
                      "metadata says",
                      delta_.path(), digest, delta_.header().digest));
    return {};
  }

 private:
  // One tensor in blocks of whole rows (or, without a table, of whole elements: a hostile row may
  // be as long as the file).
  Status read_tensor(const std::string& name, const SafetensorsEntry& entry) {
    const TensorPlace place = place_of_tensor(name);
    const auto element = static_cast<int64_t>(dtype_size(entry.dtype));
    int64_t row_bytes = element;
    if (options_.table != nullptr && entry.shape.rank() == 2) row_bytes *= entry.shape[1];
    if (place.role == TensorRole::kAlpha && options_.table != nullptr) row_bytes = entry.bytes;
    const int64_t block_rows = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, row_bytes));
    const int64_t rows = row_bytes == 0 ? 0 : entry.bytes / row_bytes;
    std::vector<uint8_t> block(static_cast<size_t>(std::min(rows, block_rows) * row_bytes));
    TensorHasher hasher;
    for (int64_t first = 0; first < rows; first += block_rows) {
      if (options_.cancelled != nullptr && options_.cancelled->load(std::memory_order_relaxed))
        return cancelled(fmt::format("{}: loading was cancelled", delta_.path()));
      const int64_t count = std::min(block_rows, rows - first), bytes = count * row_bytes;
      RETURN_IF_ERROR(delta_.file().read(entry, first * row_bytes, bytes, block.data()));
      hasher.update(block.data(), bytes);
      RETURN_IF_ERROR(take_block(name, entry, place, first, count, block.data(), bytes));
      report(bytes);
    }
    std::vector<PartHash> parts = hasher.finish();
    MutexLock lock(mutex_);
    hashes_.emplace(name, HashedTensor{entry.dtype, entry.shape, std::move(parts)});
    return {};
  }

  Status take_block(const std::string& name, const SafetensorsEntry& entry,
                    const TensorPlace& place, int64_t first, int64_t count, const uint8_t* data,
                    int64_t bytes) {
    const bool deliver = options_.sink != nullptr && options_.table != nullptr;
    if (place.role == TensorRole::kSign) {
      if (options_.table != nullptr)
        RETURN_IF_ERROR(check_padding(name, place, first, count, data));
      return deliver ? options_.sink->sign_rows(place.weight, place.level, first, count, data)
                     : Status();
    }
    const int64_t n = bytes / static_cast<int64_t>(dtype_size(entry.dtype));
    std::vector<float> values(static_cast<size_t>(n));
    widen(entry.dtype, n, data, values.data());
    for (int64_t i = 0; i < n; ++i) {
      if (!std::isfinite(values[static_cast<size_t>(i)]))
        return invalid_argument(
            fmt::format("{}: tensor '{}': a value is {}, expected finite "
                        "numbers",
                        delta_.path(), name, values[static_cast<size_t>(i)]));
    }
    if (!deliver) return {};
    if (place.role == TensorRole::kAlpha)
      return options_.sink->alpha(place.weight, place.level, n, values.data());
    return options_.sink->dense_rows(place.weight, first, count, values.data());
  }

  // bits [count, ⌈d_in/8⌉]: bits past column d_in must be 0.
  Status check_padding(const std::string& name, const TensorPlace& place, int64_t first,
                       int64_t count, const uint8_t* bits) const {
    const WeightTable::Place& at = options_.table->by_name.at(place.weight);
    const int64_t columns = options_.table->specs[static_cast<size_t>(at.weight)].columns;
    if (columns % 8 == 0) return {};
    const int64_t row_bytes = (columns + 7) / 8;
    for (int64_t r = 0; r < count; ++r) {
      if (bits[(r + 1) * row_bytes - 1] >> (columns % 8) != 0)
        return invalid_argument(
            fmt::format("{}: tensor '{}': row {} has padding bits set, expected 0 beyond column {}",
                        delta_.path(), name, first + r, columns));
    }
    return {};
  }

  void report(int64_t bytes) {
    if (!options_.progress) return;
    options_.progress(done_.fetch_add(bytes, std::memory_order_relaxed) + bytes, total_);
  }

  const DeltaFile& delta_;
  const DeltaReadOptions& options_;
  std::vector<std::pair<std::string, const SafetensorsEntry*>> tensors_;
  int64_t total_ = 0;
  std::atomic<int64_t> done_{0};
  Mutex mutex_;
  std::map<std::string, HashedTensor> hashes_ GUARDED_BY(mutex_);
};

}  // namespace

Status read_delta(const DeltaFile& delta, const DeltaReadOptions& options) {
  return Reader(delta, options).run();
}

}  // namespace deltad
