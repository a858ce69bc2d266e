// Reads a LoRA adapter's values for the loader. Modules are dealt out to a few threads; each reads
// its tensors whole (those saved whole block by block), hashes the very bytes that it hands on, and
// checks that they are finite.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "delta/delta_reader.h"
#include "delta/digest.h"
#include "delta/float_codec.h"
#include "delta/lora_adapter.h"
#include "delta/read_plan.h"
#include "delta/variant_reader.h"
#include "delta/work_list.h"
#include "io/bulk_reader.h"
#include "io/convert.h"
#include "io/read_shares.h"
#include "tensor/float16.h"

namespace deltad {
namespace {

VariantContent content_of(const LoraAdapter& adapter, const WeightTable& table) {
  VariantContent content;
  for (const auto& [weight, change] : adapter.changes()) {
    const WeightTable::Place& at = table.by_name.at(weight);
    if (change.whole)
      content.dense.push_back({at.weight, at.part, change.whole->entry.shape[0]});
    else
      content.low_rank.push_back({at.weight, at.part, change.rank});
  }
  return content;
}

// Where a change's tensors begin in the file, and how long they are together.
int64_t offset_of(const AdapterChange& change) {
  if (change.packed) return change.packed->offset;
  if (change.whole) return change.whole->entry.offset;
  return std::min(change.a->entry.offset, change.b->entry.offset);
}
int64_t bytes_of(const AdapterChange& change) {
  if (change.packed) return change.packed->bytes;
  if (change.whole) return change.whole->entry.bytes;
  return change.a->entry.bytes + change.b->entry.bytes;
}

std::vector<float> transposed(const std::vector<float>& in, int64_t rows, int64_t columns) {
  std::vector<float> out(in.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] = in[static_cast<size_t>(r * columns + c)];
  return out;
}

class AdapterReader final : public VariantReader {
 public:
  // table: null if values are only checked
  AdapterReader(LoraAdapter adapter, const WeightTable* table, const VariantLoadOptions& options)
      : adapter_(std::move(adapter)), table_(table), options_(options) {
    if (table_ != nullptr) content_ = content_of(adapter_, *table_);
  }

  const std::string& path() const override { return adapter_.path(); }
  const VariantContent& content() const override { return content_; }
  std::string claimed_digest() const override { return adapter_.digest(); }
  bool head_follows_embeddings() const override { return adapter_.head_follows_embeddings(); }

  Result<std::string> read(VariantWeights* weights) const override {
    Reading reading(*this, weights);
    const Status read = reading.run();
    if (read.code() == Code::kCancelled) return read;
    RETURN_IF_ERROR(adapter_.unchanged());
    RETURN_IF_ERROR(read);
    const std::string digest = reading.digest();
    if (!adapter_.digest().empty() && digest != adapter_.digest())
      return invalid_argument(
          fmt::format("{}: its digest is {}, but its values give {}: the file is damaged", path(),
                      adapter_.digest(), digest));
    return digest;
  }

 private:
  // One reading of all values.
  class Reading {
   public:
    Reading(const AdapterReader& owner, VariantWeights* weights)
        : owner_(owner),
          weights_(weights),
          file_(owner.adapter_.reader(), {owner.options_.cancelled, owner.options_.rate, true}) {}

    Status run() {
      std::vector<std::pair<const std::string*, const AdapterChange*>> changes;
      for (const auto& [weight, change] : owner_.adapter_.changes())
        changes.emplace_back(&weight, &change);
      std::stable_sort(changes.begin(), changes.end(), [](const auto& x, const auto& y) {
        return offset_of(*x.second) < offset_of(*y.second);
      });
      std::vector<int64_t> sizes;
      for (const auto& [weight, change] : changes) sizes.push_back(bytes_of(*change));
      // Each thread a run of modules, in the file's order.
      const int ranks = owner_.options_.ranks;
      const int most = std::min(owner_.options_.threads, static_cast<int>(changes.size()));
      const int threads = std::max(1, most / ranks) * ranks;
      const std::vector<int64_t> runs = read_shares(sizes, threads);
      std::vector<int64_t> one_each(static_cast<size_t>(threads) + 1);
      std::iota(one_each.begin(), one_each.end(), 0);
      RETURN_IF_ERROR(run_work_shares(one_each, threads, [&](int64_t t) -> Status {
        const auto run = static_cast<size_t>(t);
        if (runs[run] == runs[run + 1]) return {};
        ASSIGN_OR_RETURN(const Arena staging, BulkReader::staging(kStretchBytes));
        for (int64_t i = runs[run]; i < runs[run + 1]; ++i) {
          const auto& [weight, change] = changes[static_cast<size_t>(i)];
          RETURN_IF_ERROR(change->whole ? take_whole(*weight, *change, staging)
                                        : take_factors(*weight, *change, staging));
        }
        return {};
      }));
      if (owner_.adapter_.head_follows_embeddings()) add_setting("lm_head.tied", {1});
      if (owner_.adapter_.packed_bits() > 0)
        add_setting("bits", {static_cast<uint8_t>(owner_.adapter_.packed_bits())});
      return {};
    }

    // After run().
    std::string digest() {
      MutexLock lock(mutex_);
      return variant_digest(hashes_);
    }

   private:
    using Visit = std::function<Status(int64_t first, int64_t count, std::vector<float>& values)>;

    // Calls visit with blocks of whole rows, multiples of kSinkRows or up to the end.
    Status read_tensor(const AdapterTensor& tensor, const Arena& staging, const Visit& visit) {
      const SafetensorsEntry& e = tensor.entry;
      const int64_t columns = e.shape.rank() == 2 ? e.shape[1] : 1, rows = e.shape[0];
      const auto element = static_cast<int64_t>(dtype_size(e.dtype));
      const int64_t row_bytes = columns * element;
      const int64_t step =
          std::max<int64_t>(1, kStretchBytes / (row_bytes * kSinkRows)) * kSinkRows;
      TensorHasher hasher;
      std::vector<uint8_t> raw;
      std::vector<float> values;
      for (int64_t first = 0; first < rows; first += step) {
        const int64_t count = std::min(step, rows - first), bytes = count * row_bytes;
        RETURN_IF_ERROR(read_bytes(e.offset + first * row_bytes, bytes, staging, &raw));
        hasher.update(raw.data(), bytes);
        values.resize(static_cast<size_t>(count * columns));
        widen(e.dtype, count * columns, raw.data(), values.data());
        RETURN_IF_ERROR(check_finite(tensor.name, values));
        RETURN_IF_ERROR(visit(first, count, values));
      }
      MutexLock lock(mutex_);
      hashes_.insert_or_assign(tensor.name, HashedTensor{e.dtype, e.shape, hasher.finish()});
      return {};
    }

    Status read_bytes(int64_t offset, int64_t bytes, const Arena& staging,
                      std::vector<uint8_t>* out) {
      out->resize(static_cast<size_t>(bytes));
      for (int64_t at = 0; at < bytes; at += kStretchBytes) {
        const int64_t part = std::min(kStretchBytes, bytes - at);
        ASSIGN_OR_RETURN(const uint8_t* data, file_.read(offset + at, part, staging));
        std::memcpy(out->data() + at, data, static_cast<size_t>(part));
      }
      return {};
    }

    Status check_finite(const std::string& tensor, const std::vector<float>& values) const {
      for (const float value : values)
        if (!std::isfinite(bf16_to_f32(f32_to_bf16(value))))
          return invalid_argument(
              fmt::format("{}: tensor '{}': a value is {}, expected finite numbers of bf16",
                          owner_.path(), tensor, value));
      return {};
    }

    Status read_packed(const AdapterChange& change, const Arena& staging, std::vector<float>* a,
                       std::vector<float>* b) {
      const SafetensorsEntry& e = *change.packed;
      std::vector<uint8_t> raw;
      RETURN_IF_ERROR(read_bytes(e.offset, e.bytes, staging, &raw));
      TensorHasher hasher;
      hasher.update(raw.data(), e.bytes);
      {
        MutexLock lock(mutex_);
        hashes_.insert_or_assign(change.a->name, HashedTensor{e.dtype, e.shape, hasher.finish()});
      }
      RETURN_IF_ERROR(owner_.adapter_.unpack(change, raw.data(), a, b));
      RETURN_IF_ERROR(check_finite(change.a->name, *a));
      return check_finite(change.b->name, *b);
    }

    Result<std::vector<float>> read_all(const AdapterTensor& tensor, const Arena& staging) {
      std::vector<float> all;
      RETURN_IF_ERROR(
          read_tensor(tensor, staging, [&](int64_t, int64_t, std::vector<float>& values) -> Status {
            if (all.empty()) all.reserve(values.size());
            all.insert(all.end(), values.begin(), values.end());
            return {};
          }));
      return all;
    }

    Status take_whole(const std::string& weight, const AdapterChange& change,
                      const Arena& staging) {
      std::vector<uint16_t> rounded;
      return read_tensor(
          *change.whole, staging,
          [&](int64_t first, int64_t count, std::vector<float>& values) -> Status {
            if (weights_ == nullptr) return {};
            const WeightTable::Place& at = owner_.table_->by_name.at(weight);
            rounded.resize(values.size());
            f32_to_bf16(values.data(), rounded.data(), static_cast<int64_t>(values.size()));
            return weights_->put_dense_rows(at.weight, at.part, first, count, rounded.data());
          });
    }

    Status take_factors(const std::string& weight, const AdapterChange& change,
                        const Arena& staging) {
      std::vector<float> a, b;
      if (change.packed) {
        RETURN_IF_ERROR(read_packed(change, staging, &a, &b));
      } else {
        ASSIGN_OR_RETURN(a, read_all(*change.a, staging));
        ASSIGN_OR_RETURN(b, read_all(*change.b, staging));
      }
      const auto scale = std::bit_cast<std::array<uint8_t, sizeof(double)>>(change.scale);
      add_setting(weight.substr(0, weight.size() - 7) + ".scale", {scale.begin(), scale.end()});
      if (weights_ == nullptr) return {};
      const Shape &shape_a = change.a->entry.shape, &shape_b = change.b->entry.shape;
      if (change.embedding) {  // Δ[v] = s·Aᵀ[v]·Bᵀ
        std::vector<float> tokens = transposed(a, shape_a[0], shape_a[1]);
        a = transposed(b, shape_b[0], shape_b[1]);
        b = std::move(tokens);
      }
      if (change.head_rows > 0) {
        const std::vector<float> file = b;
        for (int64_t r = 0; r < shape_b[0]; ++r)
          std::copy_n(file.begin() + gguf_head_row(r, change.head_rows) * change.rank, change.rank,
                      b.begin() + r * change.rank);
      }
      const WeightTable::Place& at = owner_.table_->by_name.at(weight);
      return weights_->put_low_rank(at.weight, at.part, static_cast<float>(change.scale), a.data(),
                                    b.data());
    }

    // A setting that changes what the tensors mean, hashed as a tensor of bytes.
    void add_setting(const std::string& name, const std::vector<uint8_t>& bytes) {
      TensorHasher hasher;
      const auto count = static_cast<int64_t>(bytes.size());
      hasher.update(bytes.data(), count);
      MutexLock lock(mutex_);
      hashes_.insert_or_assign(name, HashedTensor{DType::kU8, Shape{count}, hasher.finish()});
    }

    const AdapterReader& owner_;
    VariantWeights* const weights_;
    BulkReader file_;
    Mutex mutex_;
    std::map<std::string, HashedTensor> hashes_ GUARDED_BY(mutex_);
  };

  const LoraAdapter adapter_;
  const WeightTable* const table_;
  const VariantLoadOptions& options_;
  VariantContent content_;
};

}  // namespace

Result<std::unique_ptr<VariantReader>> open_adapter_reader(const std::string& path,
                                                           const WeightTable& table,
                                                           const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(LoraAdapter adapter, LoraAdapter::open(path, table));
  if (!adapter.base_digest().empty() && !options.base_digest.empty() &&
      adapter.base_digest() != options.base_digest)
    return invalid_argument(
        fmt::format("{}: it was made for the base with digest {}, this one has {}", path,
                    adapter.base_digest(), options.base_digest));
  return std::unique_ptr<VariantReader>(
      std::make_unique<AdapterReader>(std::move(adapter), &table, options));
}

Result<std::string> adapter_digest(const LoraAdapter& adapter, const VariantLoadOptions& options) {
  ASSIGN_OR_RETURN(std::string digest, AdapterReader(adapter, nullptr, options).read(nullptr));
  const bool changes_embeddings = adapter.changes().count("model.embed_tokens.weight") != 0;
  if (changes_embeddings && !adapter.has_base()) return std::string();
  return digest;
}

}  // namespace deltad
