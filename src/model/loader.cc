// Loading the base: the table's tensors are cut into blocks of rows, which the threads take one
// after the other; those of several ranks each from its own share of the files. Each thread owns
// one block of staging; nothing else is allocated.
#include "model/loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "io/read_shares.h"

namespace deltad {
namespace {

constexpr int64_t kAllStagingBytes = int64_t{64} << 20;
constexpr int64_t kBlockBytes = int64_t{2} << 20;        // of a thread, in bf16
constexpr int64_t kReadStagingBytes = int64_t{1} << 20;  // what read_rows_bf16 takes beside it
constexpr int64_t kRowUnit = 16;                         // blocks begin at multiples of it
constexpr int kMostThreads = 16;

// Rows [first, first + count) of one part of a weight.
struct Block {
  WeightId weight;
  int part;
  const std::string* name;
  int64_t first, count;
  int64_t columns;
  int64_t bytes() const { return count * columns * 2; }
};

Shape shape_of(const WeightSpec& spec, const WeightPart& part) {
  return spec.kind == WeightKind::kVector ? Shape{part.rows} : Shape{part.rows, spec.columns};
}

std::vector<Block> cut(const WeightTable& table) {
  std::vector<Block> blocks;
  for (size_t id = 0; id < table.specs.size(); ++id) {
    const WeightSpec& spec = table.specs[id];
    if (spec.alias >= 0) continue;
    const int64_t fit = kBlockBytes / (spec.columns * 2) / kRowUnit * kRowUnit;
    const int64_t rows = std::max(fit, kRowUnit);
    for (size_t part = 0; part < spec.parts.size(); ++part)
      for (int64_t first = 0; first < spec.parts[part].rows; first += rows)
        blocks.push_back({static_cast<WeightId>(id), static_cast<int>(part), &spec.parts[part].name,
                          first, std::min(rows, spec.parts[part].rows - first), spec.columns});
  }
  return blocks;
}

// As they lie in the files.
void sort_by_place(const Checkpoint& checkpoint, std::vector<Block>* blocks) {
  const auto place = [&](const Block& block) {
    const CheckpointTensor& tensor = checkpoint.tensors().at(*block.name);
    return std::tuple(tensor.file, tensor.offset, block.first);
  };
  std::sort(blocks->begin(), blocks->end(),
            [&](const Block& x, const Block& y) { return place(x) < place(y); });
}

// Whether all are finite: no exponent is all ones. Without a branch, so that it runs at memory
// speed.
bool all_finite(const uint16_t* values, int64_t count) {
  uint16_t found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |= static_cast<uint16_t>((values[i] & 0x7f80u) == 0x7f80u);
  return found == 0;
}

class Load {
 public:
  Load(const Checkpoint& checkpoint, WeightStore& store, const std::vector<Block>& blocks,
       const Progress& progress)
      : checkpoint_(checkpoint), store_(store), blocks_(blocks), progress_(progress) {
    std::vector<int64_t> sizes;
    for (const Block& block : blocks_) {
      total_ += block.bytes();
      largest_ = std::max(largest_, block.bytes());
      sizes.push_back(block.bytes());
    }
    const std::vector<int64_t> bounds = read_shares(sizes, store_.ranks());
    shares_ = std::vector<Share>(static_cast<size_t>(store_.ranks()));
    for (size_t r = 0; r < shares_.size(); ++r) {
      shares_[r].next = static_cast<size_t>(bounds[r]);
      shares_[r].end = static_cast<size_t>(bounds[r + 1]);
    }
  }

  Status run(int threads) {
    const int64_t each = largest_ + kReadStagingBytes;
    const int64_t most = std::max<int64_t>(1, kAllStagingBytes / each);
    threads = static_cast<int>(std::min<int64_t>(std::clamp(threads, 1, kMostThreads), most));
    const size_t count = std::max(static_cast<size_t>(threads), shares_.size());
    std::vector<std::thread> others;
    try {
      for (size_t i = 1; i < count; ++i)
        others.emplace_back([this, i] { work(shares_[i % shares_.size()]); });
    } catch (const std::system_error& error) {
      log_warning("loading with {} threads instead of {}: {}", others.size() + 1, count,
                  error.what());
    }
    work(shares_[0]);
    for (size_t i = others.size() + 1; i < shares_.size(); ++i) work(shares_[i]);
    for (std::thread& thread : others) thread.join();
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  // The blocks of one rank; of all if there are no others.
  struct Share {
    std::atomic<size_t> next{0};
    size_t end = 0;
  };

  void work(Share& share) {
    Result<Buffer> staging = Buffer::cpu(static_cast<size_t>(largest_));
    if (!staging.ok()) return fail(staging.status());
    while (!stop_) {
      const size_t next = share.next++;
      if (next >= share.end) return;
      const Status status = load(blocks_[next], staging->as<uint16_t>());
      if (!status.ok()) return fail(status);
      add_progress(blocks_[next].bytes());
    }
  }

  Status load(const Block& block, uint16_t* staging) {
    RETURN_IF_ERROR(checkpoint_.read_rows_bf16(*block.name, block.first, block.count, staging));
    if (!all_finite(staging, block.count * block.columns)) {
      int64_t row = 0;
      while (all_finite(staging + row * block.columns, block.columns)) ++row;
      return invalid_argument(fmt::format(
          "{}: tensor {} has a value in row {} that is not finite (infinite, NaN, or too large for "
          "bf16)",
          checkpoint_.path(), *block.name, block.first + row));
    }
    return store_.put_rows(block.weight, block.part, block.first, block.count, staging);
  }

  void add_progress(int64_t bytes) {
    MutexLock lock(mutex_);  // also held while reporting, so that reports never go backwards
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

  void fail(const Status& status) {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
    stop_ = true;
  }

  const Checkpoint& checkpoint_;
  WeightStore& store_;
  const std::vector<Block>& blocks_;
  const Progress& progress_;
  int64_t total_ = 0, largest_ = 0;
  std::vector<Share> shares_;
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  int64_t done_ GUARDED_BY(mutex_) = 0;
  Status status_ GUARDED_BY(mutex_);
};

// What the model's weights are stored as, and that they are rounded unless all of them are bf16.
void log_types(const Checkpoint& checkpoint, const std::vector<Block>& blocks) {
  std::map<std::string, int> tensors_of;
  for (const Block& block : blocks)
    if (block.first == 0) ++tensors_of[checkpoint.tensors().at(*block.name).stored_type];
  if (tensors_of.empty() || (tensors_of.size() == 1 && tensors_of.count("BF16") != 0)) return;
  std::string list;
  for (const auto& [type, count] : tensors_of)
    if (type != "BF16")
      list += fmt::format("{}{} ({} tensors)", list.empty() ? "" : ", ", type, count);
  log_info("{}: weights stored as {} are rounded to bf16", checkpoint.path(), list);
}

}  // namespace

Status check_tensors(const Checkpoint& checkpoint, const WeightTable& table) {
  for (const WeightSpec& spec : table.specs) {
    if (spec.alias >= 0) continue;
    for (const WeightPart& part : spec.parts) {
      const Shape expected = shape_of(spec, part);
      const auto at = checkpoint.tensors().find(part.name);
      if (at == checkpoint.tensors().end())
        return invalid_argument(fmt::format("{} lacks the tensor {}; expected shape {}",
                                            checkpoint.path(), part.name, expected.str()));
      if (at->second.shape != expected)
        return invalid_argument(fmt::format("{}: tensor {} has the shape {}; expected {}",
                                            checkpoint.path(), part.name, at->second.shape.str(),
                                            expected.str()));
    }
  }
  return {};
}

Status load_base(const Checkpoint& checkpoint, const WeightTable& table, WeightStore& store,
                 int threads, const Progress& progress) {
  RETURN_IF_ERROR(check_tensors(checkpoint, table));
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (table.by_name.count(name) == 0)
      log_warning("{}: tensor {} is not used by {}", checkpoint.path(), name,
                  checkpoint.config().architecture);
  RETURN_IF_ERROR(store.declare_weights(table.specs));
  std::vector<Block> blocks = cut(table);
  if (store.ranks() > 1) sort_by_place(checkpoint, &blocks);
  log_types(checkpoint, blocks);
  RETURN_IF_ERROR(Load(checkpoint, store, blocks, progress).run(threads));
  return store.finish_weights();
}

}  // namespace deltad
