#include "delta/compress.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "backend/backend.h"
#include "base/mutex.h"
#include "delta/delta_file.h"
#include "delta/digest.h"
#include "delta/float_codec.h"
#include "delta/low_rank_part.h"
#include "delta/sign_rows.h"
#include "delta/work_list.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string kind_of(const std::string& weight) {
  const std::string module = weight.substr(0, weight.rfind('.'));
  return module.substr(module.rfind('.') + 1);
}

class Compressor {
 public:
  Compressor(const Checkpoint& base, const Tune& tune, const CompressOptions& options)
      : base_(base), tune_(tune), options_(options) {}

  Result<CompressReport> run(const std::string& path) {
    ASSIGN_OR_RETURN(report_.base_digest, base_digest(base_));
    RETURN_IF_ERROR(find_changes());
    RETURN_IF_ERROR(create(path));
    const auto n = static_cast<int64_t>(changed_.size());
    reports_.resize(changed_.size());
    // The fitter, which works in several threads itself, goes along with what is carried.
    const int64_t fits = options_.fitter ? 1 : 0;
    RETURN_IF_ERROR(run_work_list(n + fits, options_.jobs, [&](int64_t i) -> Status {
      if (i < fits) return write_fitted();
      const std::string& name = changed_[static_cast<size_t>(i - fits)];
      if (!tune_.tensors().at(name).as_delta) return carry(name);
      if (options_.fitter) return {};
      return compress_matrix(name, &reports_[static_cast<size_t>(i)]);
    }));
    {
      MutexLock lock(mutex_);
      report_.digest = variant_digest(hashes_);
    }
    RETURN_IF_ERROR(writer_->set_metadata("digest", report_.digest));
    RETURN_IF_ERROR(writer_->finish());
    sum_up();
    return std::move(report_);
  }

 private:
  // Which tensors the file will hold; the header comes first in it.
  Status find_changes() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tune_.tensors()) names.push_back(name);
    std::vector<char> differs(names.size());
    RETURN_IF_ERROR(
        run_work_list(static_cast<int64_t>(names.size()), options_.jobs, [&](int64_t i) -> Status {
          const auto at = static_cast<size_t>(i);
          ASSIGN_OR_RETURN(differs[at], tune_.differs(names[at]));
          return {};
        }));
    for (size_t i = 0; i < names.size(); ++i) {
      const Shape& shape = tune_.tensors().at(names[i]).shape;
      if (differs[i]) {
        changed_.push_back(names[i]);
        total_weights_ += shape.count();
      } else {
        ++report_.equal_tensors;
      }
    }
    if (changed_.empty())
      return invalid_argument(
          fmt::format("{}: no tensor differs from the base {}", tune_.path(), base_.path()));
    // The largest first, so that no thread is left alone with one at the end.
    std::stable_sort(changed_.begin(), changed_.end(), [&](const auto& a, const auto& b) {
      return tune_.tensors().at(a).shape.count() > tune_.tensors().at(b).shape.count();
    });
    return {};
  }

  Shape alpha_shape(const Shape& matrix) const {
    return Shape{options_.alpha_per_row ? matrix[0] : 1};
  }
  static Shape low_rank_shape(const Shape& matrix, int64_t rank) {
    return Shape{rank, low_rank_row_bytes(matrix[1], matrix[0])};
  }
  static Shape sign_shape(const Shape& matrix) { return Shape{matrix[0], (matrix[1] + 7) / 8}; }

  Status create(const std::string& path) {
    std::vector<SafetensorsWriter::Tensor> tensors;
    bool has_low_rank = false;
    for (const std::string& name : changed_) {
      const TunedTensor& tensor = tune_.tensors().at(name);
      if (!tensor.as_delta) {
        tensors.push_back({name, tensor.type, tensor.shape});
        continue;
      }
      for (int level = 0; level < levels_of(name); ++level) {
        tensors.push_back({sign_name(name, level), DType::kU8, sign_shape(tensor.shape)});
        tensors.push_back({alpha_name(name, level), DType::kF32, alpha_shape(tensor.shape)});
      }
      if (const int64_t rank = options_.fitter ? options_.fitter->low_rank(name) : 0; rank > 0) {
        tensors.push_back({low_rank_name(name), DType::kU8, low_rank_shape(tensor.shape, rank)});
        has_low_rank = true;
      }
    }
    // Wide elements first, so that every tensor is aligned.
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      const size_t wide_a = dtype_size(a.dtype), wide_b = dtype_size(b.dtype);
      return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
    });
    report_.levels = most_levels();
    std::map<std::string, std::string> metadata = {
        {"format", "deltad.delta"},
        {"version", has_low_rank ? "2" : "1"},
        {"variant", options_.variant},
        {"base_name", base_.config().name},
        {"base_digest", report_.base_digest},
        {"architecture", base_.config().architecture},
        {"alpha", options_.alpha_per_row ? "row" : "matrix"},
        {"levels", std::to_string(report_.levels)},
        {"created_by", options_.created_by},
        {"tie_word_embeddings", tune_.tied_head() ? "true" : "false"},
        {"digest", std::string(32, '0')}};
    if (options_.fitter) metadata.merge(options_.fitter->metadata());
    ASSIGN_OR_RETURN(writer_, SafetensorsWriter::create(path, metadata, tensors));
    for (const auto& tensor : tensors)
      report_.file_bytes += tensor.shape.count() * static_cast<int64_t>(dtype_size(tensor.dtype));
    return {};
  }

  int levels_of(const std::string& matrix) const {
    return options_.fitter ? options_.fitter->levels(matrix) : options_.levels;
  }

  int most_levels() const {
    int most = 1;
    for (const std::string& name : changed_)
      if (tune_.tensors().at(name).as_delta) most = std::max(most, levels_of(name));
    return most;
  }

  // The layers in order, as the fitter gives them.
  Status write_fitted() {
    for (int64_t layer = 0; layer < base_.config().layers; ++layer) {
      ASSIGN_OR_RETURN(const auto matrices, options_.fitter->fit_layer(layer));
      for (const auto& [name, matrix] : matrices) {
        const auto at = std::find(changed_.begin(), changed_.end(), name) - changed_.begin();
        RETURN_IF_ERROR(write_matrix(name, matrix, &reports_[static_cast<size_t>(at)]));
      }
    }
    ASSIGN_OR_RETURN(const auto metadata, options_.fitter->finish());
    for (const auto& [key, value] : metadata) RETURN_IF_ERROR(writer_->set_metadata(key, value));
    return {};
  }

  Status write_matrix(const std::string& name, const FittedMatrix& matrix, KindReport* report) {
    const Shape& shape = tune_.tensors().at(name).shape;
    report->kind = kind_of(name);
    report->matrices = 1;
    report->weights = shape.count();
    report->rank_bytes = low_rank_row_bytes(shape[1], shape[0]);
    report->zeros = matrix.zeros;
    report->delta_squares = matrix.delta_squares;
    report->base_squares = matrix.base_squares;
    report->error_squares = matrix.error_squares;
    for (size_t l = 0; l < matrix.levels.size(); ++l) {
      const FittedLevel& level = matrix.levels[l];
      const std::string sign = sign_name(name, static_cast<int>(l));
      const std::string alpha = alpha_name(name, static_cast<int>(l));
      const auto alpha_bytes = static_cast<int64_t>(level.alpha.size() * sizeof(float));
      const auto sign_bytes = static_cast<int64_t>(level.bits.size());
      TensorHasher signs, alphas;
      signs.update(level.bits.data(), sign_bytes);
      alphas.update(level.alpha.data(), alpha_bytes);
      RETURN_IF_ERROR(writer_->write(sign, 0, level.bits.data(), sign_bytes));
      RETURN_IF_ERROR(writer_->write(alpha, 0, level.alpha.data(), alpha_bytes));
      keep_hash(sign, DType::kU8, sign_shape(shape), &signs);
      keep_hash(alpha, DType::kF32, alpha_shape(shape), &alphas);
      report->bytes += sign_bytes + alpha_bytes;
    }
    if (!matrix.low_rank.empty()) {
      const std::string tensor = low_rank_name(name);
      const auto bytes = static_cast<int64_t>(matrix.low_rank.size());
      TensorHasher hasher;
      hasher.update(matrix.low_rank.data(), bytes);
      RETURN_IF_ERROR(writer_->write(tensor, 0, matrix.low_rank.data(), bytes));
      const int64_t rank = bytes / low_rank_row_bytes(shape[1], shape[0]);
      keep_hash(tensor, DType::kU8, low_rank_shape(shape, rank), &hasher);
      report->bytes += bytes;
    }
    report_progress(shape.count());
    return {};
  }

  void keep_hash(const std::string& name, DType type, const Shape& shape, TensorHasher* hasher) {
    std::vector<PartHash> parts = hasher->finish();
    MutexLock lock(mutex_);
    hashes_.emplace(name, HashedTensor{type, shape, std::move(parts)});
  }

  Status not_finite(const std::string& name, int64_t row) const {
    return invalid_argument(fmt::format(
        "{}: tensor '{}': row {} has a value that is not a finite number (or too large)",
        tune_.path(), name, row));
  }

  Status carry(const std::string& name) {
    const TunedTensor& tensor = tune_.tensors().at(name);
    const int64_t step = block_rows(tensor.shape), columns = columns_of(tensor.shape);
    const auto element = static_cast<int64_t>(dtype_size(tensor.type));
    std::vector<float> values(static_cast<size_t>(step * columns));
    std::vector<uint8_t> bytes(static_cast<size_t>(step * columns * element));
    TensorHasher hasher;
    for (int64_t first = 0; first < tensor.shape[0]; first += step) {
      const int64_t count = std::min(step, tensor.shape[0] - first), n = count * columns;
      RETURN_IF_ERROR(tune_.value_rows(name, first, count, values.data()));
      for (int64_t i = 0; i < n; ++i)
        if (!std::isfinite(values[static_cast<size_t>(i)]))
          return not_finite(name, first + i / columns);
      narrow(tensor.type, n, values.data(), bytes.data());
      hasher.update(bytes.data(), n * element);
      RETURN_IF_ERROR(writer_->write(name, first * columns * element, bytes.data(), n * element));
      report_progress(n);
    }
    keep_hash(name, tensor.type, tensor.shape, &hasher);
    return {};
  }

  // One matrix on its way through the passes.
  struct Matrix {
    const std::string& name;
    const Shape& shape;
    KindReport* report;
    std::vector<TensorHasher> signs;         // of each level
    std::vector<std::vector<float>> alphas;  // of each level: [d_out], or [1]
  };

  Status compress_matrix(const std::string& name, KindReport* report) {
    const Shape& shape = tune_.tensors().at(name).shape;
    const auto levels = static_cast<size_t>(options_.levels);
    Matrix matrix{name, shape, report, std::vector<TensorHasher>(levels),
                  std::vector<std::vector<float>>(
                      levels, std::vector<float>(static_cast<size_t>(alpha_shape(shape)[0])))};
    report->kind = kind_of(name);
    report->matrices = 1;
    report->weights = shape.count();
    report->rank_bytes = low_rank_row_bytes(shape[1], shape[0]);
    if (options_.alpha_per_row) {
      RETURN_IF_ERROR(row_pass(&matrix));
    } else {
      // The α of a level is a mean over the whole matrix of what the levels before it leave.
      for (int pass = 0; pass <= options_.levels; ++pass)
        RETURN_IF_ERROR(matrix_pass(&matrix, pass));
    }
    for (int level = 0; level < options_.levels; ++level) {
      const auto at = static_cast<size_t>(level);
      const auto bytes = static_cast<int64_t>(matrix.alphas[at].size() * sizeof(float));
      const std::string alpha = alpha_name(name, level);
      TensorHasher hasher;
      hasher.update(matrix.alphas[at].data(), bytes);
      RETURN_IF_ERROR(writer_->write(alpha, 0, matrix.alphas[at].data(), bytes));
      keep_hash(alpha, DType::kF32, alpha_shape(shape), &hasher);
      keep_hash(sign_name(name, level), DType::kU8, sign_shape(shape), &matrix.signs[at]);
      report->bytes += bytes + sign_shape(shape).count();
    }
    return {};
  }

  // Calls visit(row, Δ of that row [d_in], w of that row) for all rows, with Δ for it to change,
  // and end_block(first, count) after each block.
  template <typename Visit, typename EndBlock>
  Status for_each_row(const Matrix& matrix, Visit visit, EndBlock end_block) {
    const int64_t step = block_rows(matrix.shape), columns = matrix.shape[1];
    std::vector<uint16_t> base(static_cast<size_t>(step * columns));
    std::vector<double> delta(base.size());
    for (int64_t first = 0; first < matrix.shape[0]; first += step) {
      const int64_t count = std::min(step, matrix.shape[0] - first);
      RETURN_IF_ERROR(base_.read_rows_bf16(matrix.name, first, count, base.data()));
      RETURN_IF_ERROR(tune_.delta_rows(matrix.name, first, count, base.data(), delta.data()));
      for (int64_t r = 0; r < count; ++r)
        RETURN_IF_ERROR(visit(first + r, delta.data() + r * columns, base.data() + r * columns));
      RETURN_IF_ERROR(end_block(first, count));
    }
    return {};
  }

  // Sums of Δ and W that do not depend on the form of compression.
  Result<RowSums> measure(const Matrix& matrix, int64_t row, const double* delta,
                          const uint16_t* base) {
    const int64_t columns = matrix.shape[1];
    const RowSums sums = row_sums(delta, columns);
    if (!std::isfinite(sums.absolute)) return not_finite(matrix.name, row);
    matrix.report->delta_squares += sums.squares;
    matrix.report->base_squares += bf16_squares(base, columns);
    matrix.report->zeros += count_zeros(delta, columns);
    return sums;
  }

  Status row_pass(Matrix* matrix) {
    const int64_t columns = matrix->shape[1], row_bytes = (columns + 7) / 8;
    const int64_t step = block_rows(matrix->shape);
    std::vector<std::vector<uint8_t>> bits(
        static_cast<size_t>(options_.levels),
        std::vector<uint8_t>(static_cast<size_t>(step * row_bytes)));
    const auto visit = [&](int64_t row, double* delta, const uint16_t* base) -> Status {
      ASSIGN_OR_RETURN(RowSums sums, measure(*matrix, row, delta, base));
      for (size_t level = 0; level < bits.size(); ++level) {
        const auto alpha = static_cast<float>(sums.absolute / static_cast<double>(columns));
        if (!std::isfinite(alpha)) return not_finite(matrix->name, row);
        matrix->alphas[level][static_cast<size_t>(row)] = alpha;
        pack_signs(delta, columns, bits[level].data() + row % step * row_bytes);
        subtract_signs(delta, columns, alpha);
        sums = row_sums(delta, columns);
      }
      matrix->report->error_squares += sums.squares;
      return {};
    };
    const auto end_block = [&](int64_t first, int64_t count) -> Status {
      for (int level = 0; level < options_.levels; ++level)
        RETURN_IF_ERROR(write_signs(matrix, level, first, count, bits[static_cast<size_t>(level)]));
      report_progress(count * columns);
      return {};
    };
    return for_each_row(*matrix, visit, end_block);
  }

  // Pass 0 measures Δ; pass p writes the signs of level p − 1; each but the last gives the α of the
  // next level.
  Status matrix_pass(Matrix* matrix, int pass) {
    const int64_t columns = matrix->shape[1], row_bytes = (columns + 7) / 8;
    const int64_t step = block_rows(matrix->shape);
    std::vector<uint8_t> bits(static_cast<size_t>(pass == 0 ? 0 : step * row_bytes));
    double absolute = 0;
    const auto visit = [&](int64_t row, double* delta, const uint16_t* base) -> Status {
      RowSums sums;
      if (pass == 0) {
        ASSIGN_OR_RETURN(sums, measure(*matrix, row, delta, base));
      } else {
        for (int level = 0; level < pass; ++level) {
          if (level == pass - 1) pack_signs(delta, columns, bits.data() + row % step * row_bytes);
          subtract_signs(delta, columns, matrix->alphas[static_cast<size_t>(level)][0]);
        }
        sums = row_sums(delta, columns);
      }
      absolute += sums.absolute;
      if (pass == options_.levels) matrix->report->error_squares += sums.squares;
      return {};
    };
    const auto end_block = [&](int64_t first, int64_t count) -> Status {
      if (pass == 0) return {};
      if (pass == options_.levels) report_progress(count * columns);
      return write_signs(matrix, pass - 1, first, count, bits);
    };
    RETURN_IF_ERROR(for_each_row(*matrix, visit, end_block));
    if (pass == options_.levels) return {};
    const auto alpha = static_cast<float>(absolute / static_cast<double>(matrix->shape.count()));
    if (!std::isfinite(alpha)) return not_finite(matrix->name, 0);
    matrix->alphas[static_cast<size_t>(pass)][0] = alpha;
    return {};
  }

  // bits [count, ⌈d_in/8⌉]
  Status write_signs(Matrix* matrix, int level, int64_t first, int64_t count,
                     const std::vector<uint8_t>& bits) {
    const int64_t row_bytes = (matrix->shape[1] + 7) / 8;
    matrix->signs[static_cast<size_t>(level)].update(bits.data(), count * row_bytes);
    return writer_->write(sign_name(matrix->name, level), first * row_bytes, bits.data(),
                          count * row_bytes);
  }

  void report_progress(int64_t weights) {
    if (!options_.progress) return;
    const int64_t done = done_.fetch_add(weights, std::memory_order_relaxed) + weights;
    options_.progress(done, total_weights_);
  }

  void sum_up() {
    const auto add = [](KindReport* to, const KindReport& part) {
      to->matrices += part.matrices;
      to->weights += part.weights;
      to->zeros += part.zeros;
      to->bytes += part.bytes;
      to->rank_bytes += part.rank_bytes;
      to->delta_squares += part.delta_squares;
      to->base_squares += part.base_squares;
      to->error_squares += part.error_squares;
    };
    const WeightTable table = make_weight_table(base_.config());
    for (const WeightSpec& spec : table.specs)
      for (const WeightPart& part : spec.parts) {
        const auto same = [&](const KindReport& r) { return r.kind == kind_of(part.name); };
        if (is_block_matrix(part.name) &&
            std::none_of(report_.kinds.begin(), report_.kinds.end(), same)) {
          report_.kinds.emplace_back();
          report_.kinds.back().kind = kind_of(part.name);
        }
      }
    report_.total.kind = "total";
    for (size_t i = 0; i < changed_.size(); ++i) {
      const TunedTensor& tensor = tune_.tensors().at(changed_[i]);
      if (!tensor.as_delta) {
        ++report_.dense_tensors;
        report_.dense_bytes += tensor.shape.count() * static_cast<int64_t>(dtype_size(tensor.type));
        continue;
      }
      for (KindReport& kind : report_.kinds)
        if (kind.kind == reports_[i].kind) add(&kind, reports_[i]);
      add(&report_.total, reports_[i]);
    }
    std::erase_if(report_.kinds, [](const KindReport& kind) { return kind.matrices == 0; });
    for (const auto& [name, tensor] : base_.tensors()) {
      const auto tuned = tune_.tensors().find(name);
      report_.model_bytes +=
          2 * (tuned == tune_.tensors().end() ? tensor.shape : tuned->second.shape).count();
    }
    for (const auto& [name, tensor] : tune_.tensors())
      if (base_.tensors().count(name) == 0) report_.model_bytes += 2 * tensor.shape.count();
    if (options_.fitter) return;  // which knows better: what the outputs lose
    for (const KindReport& kind : report_.kinds)
      if (kind.relative_error() > kLargeError) report_.large_errors.push_back(kind.kind);
    if (!report_.large_errors.empty() && options_.levels < kMaxLevels)
      report_.suggested_levels = options_.levels + 1;
  }

  const Checkpoint& base_;
  const Tune& tune_;
  const CompressOptions& options_;
  std::vector<std::string> changed_;
  std::vector<KindReport> reports_;  // of each changed tensor that is a matrix
  int64_t total_weights_ = 0;
  std::atomic<int64_t> done_{0};
  std::unique_ptr<SafetensorsWriter> writer_;
  CompressReport report_;
  Mutex mutex_;
  std::map<std::string, HashedTensor> hashes_ GUARDED_BY(mutex_);
};

}  // namespace

double KindReport::relative_delta() const { return std::sqrt(share(delta_squares, base_squares)); }
double KindReport::relative_error() const { return std::sqrt(share(error_squares, delta_squares)); }
double KindReport::zero_share() const {
  return share(static_cast<double>(zeros), static_cast<double>(weights));
}
double KindReport::ratio() const {
  return share(static_cast<double>(2 * weights), static_cast<double>(bytes));
}

Result<CompressReport> compress(const Checkpoint& base, const Tune& tune, const std::string& path,
                                const CompressOptions& options) {
  return Compressor(base, tune, options).run(path);
}

}  // namespace deltad
