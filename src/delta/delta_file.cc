#include "delta/delta_file.h"

#include <fmt/core.h>

#include <algorithm>

#include "backend/backend.h"
#include "delta/float_codec.h"
#include "delta/low_rank_part.h"
#include "delta/variant_path.h"

namespace deltad {
namespace {

constexpr const char* kEmbeddings = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kLowRank = ".low_rank";

bool is_digest(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string level_suffix(int level) { return level == 0 ? "" : fmt::format(".{}", level); }

}  // namespace

// "M.sign", "M.sign.1", "M.alpha", "M.alpha.1", "M.low_rank"; everything else is dense.
TensorPlace place_of_tensor(const std::string& name) {
  std::string stem = name;
  int level = 0;
  const size_t dot = stem.rfind('.');
  if (dot != std::string::npos && dot + 2 == stem.size() && stem[dot + 1] >= '1' &&
      stem[dot + 1] <= '9') {
    level = stem[dot + 1] - '0';
    stem.resize(dot);
  }
  for (const auto& [end, role] :
       {std::pair{".sign", TensorRole::kSign}, std::pair{".alpha", TensorRole::kAlpha}}) {
    const std::string ending = end;
    if (stem.size() > ending.size() &&
        stem.compare(stem.size() - ending.size(), ending.size(), ending) == 0)
      return {role, stem.substr(0, stem.size() - ending.size()) + ".weight", level};
  }
  if (const std::string ending = kLowRank; name.size() > ending.size() && name.ends_with(ending))
    return {TensorRole::kLowRank, name.substr(0, name.size() - ending.size()) + ".weight", 0};
  return {TensorRole::kDense, name, 0};
}

std::string sign_name(const std::string& weight, int level) {
  return weight.substr(0, weight.rfind('.')) + ".sign" + level_suffix(level);
}

std::string alpha_name(const std::string& weight, int level) {
  return weight.substr(0, weight.rfind('.')) + ".alpha" + level_suffix(level);
}

std::string low_rank_name(const std::string& weight) {
  return weight.substr(0, weight.rfind('.')) + kLowRank;
}

Result<DeltaFile> DeltaFile::open(const std::string& path) {
  if (is_adapter(path))
    return invalid_argument(fmt::format(
        "{}: a LoRA adapter, not a variant file: it is served as it is; deltactl compress "
        "--adapter makes a variant file of it",
        path));
  ASSIGN_OR_RETURN(const std::string file, find_variant_file(path));
  DeltaFile delta;
  ASSIGN_OR_RETURN(delta.file_, SafetensorsFile::open(file));
  RETURN_IF_ERROR(delta.read_header());
  RETURN_IF_ERROR(delta.sort_tensors());
  return delta;
}

Status DeltaFile::wrong(const std::string& tensor, const std::string& what) const {
  return invalid_argument(fmt::format("{}: tensor '{}': {}", path(), tensor, what));
}

Status DeltaFile::read_header() {
  const auto& metadata = file_.metadata();
  const auto value = [&](const char* key) {
    const auto it = metadata.find(key);
    return it == metadata.end() ? std::string() : it->second;
  };
  const auto bad = [&](const char* key, const std::string& expected) {
    return invalid_argument(fmt::format("{}: metadata '{}' is '{}', expected {}", path(), key,
                                        value(key).substr(0, 100), expected));
  };
  if (value("format") != "deltad.delta") {
    return invalid_argument(
        fmt::format("{}: not a variant file: metadata 'format' is '{}', expected 'deltad.delta'",
                    path(), value("format").substr(0, 100)));
  }
  if (const std::string version = value("version"); version != "1" && version != "2")
    return bad("version", "'1', or '2' of files with low-rank parts");
  header_.variant = value("variant");
  header_.base_name = value("base_name");
  header_.created_by = value("created_by");
  header_.architecture = value("architecture");
  if (header_.architecture.empty()) return bad("architecture", "a model's class");
  header_.base_digest = value("base_digest");
  if (!header_.base_digest.empty() && !is_digest(header_.base_digest))
    return bad("base_digest", "32 lower-case hex digits, or nothing");
  header_.digest = value("digest");
  if (!is_digest(header_.digest)) return bad("digest", "32 lower-case hex digits");
  const std::string alpha = value("alpha");
  if (alpha != "matrix" && alpha != "row") return bad("alpha", "'matrix' or 'row'");
  header_.alpha_per_row = alpha == "row";
  const std::string levels = value("levels");
  if (levels.size() != 1 || levels[0] < '1' || levels[0] > '0' + kMaxLevels)
    return bad("levels", fmt::format("1 to {}", kMaxLevels));
  header_.levels = levels[0] - '0';
  const std::string tied = value("tie_word_embeddings");
  if (!tied.empty() && tied != "true" && tied != "false")
    return bad("tie_word_embeddings", "'true' or 'false'");
  if (!tied.empty()) header_.tie_word_embeddings = tied == "true";
  return {};
}

Status DeltaFile::sort_tensors() {
  for (const auto& [name, entry] : file_.tensors()) {
    const TensorPlace place = place_of_tensor(name);
    if (place.role == TensorRole::kDense) {
      if (!is_float(entry.dtype))
        return wrong(name, fmt::format("its type is {}, expected F32, F16 or BF16",
                                       dtype_name(entry.dtype)));
      dense_.emplace(name, entry);
      continue;
    }
    if (place.role == TensorRole::kLowRank) {
      if (entry.dtype != DType::kU8)
        return wrong(name, fmt::format("its type is {}, expected U8", dtype_name(entry.dtype)));
      const int64_t least = low_rank_row_bytes(1, 1);
      if (entry.shape.rank() != 2 || entry.shape[0] < 1 || entry.shape[0] > kMaxLowRank ||
          entry.shape[1] < least)
        return wrong(name,
                     fmt::format("its shape is {}, expected [rank, n] of rank 1 to {}, n from {}",
                                 entry.shape.str(), kMaxLowRank, least));
      low_rank_.emplace(place.weight, entry);
      continue;
    }
    if (place.level >= header_.levels)
      return wrong(name, fmt::format("level {} of a file whose metadata says levels = {}",
                                     place.level + 1, header_.levels));
    std::vector<Level>& levels = matrices_[place.weight];
    if (levels.empty())
      levels.resize(static_cast<size_t>(header_.levels),
                    Level{{DType::kU8, {}, 0, -1}, {DType::kF32, {}, 0, -1}});
    Level& level = levels[static_cast<size_t>(place.level)];
    (place.role == TensorRole::kSign ? level.sign : level.alpha) = entry;
  }
  for (auto& [weight, levels] : matrices_) {
    // Levels that are missing at the end are allowed (fewer than the file's most); gaps are not.
    const auto missing = [](const Level& l) { return l.sign.bytes < 0 && l.alpha.bytes < 0; };
    while (levels.size() > 1 && missing(levels.back())) levels.pop_back();
    RETURN_IF_ERROR(check_levels(weight, levels));
    if (dense_.count(weight) != 0)
      return wrong(weight, "the file holds both a sign delta and a dense value for it");
  }
  for (const auto& [weight, entry] : low_rank_)
    if (dense_.count(weight) != 0)
      return wrong(weight, "the file holds both a low-rank part and a dense value for it");
  return {};
}

Status DeltaFile::check_levels(const std::string& weight, const std::vector<Level>& levels) const {
  for (size_t i = 0; i < levels.size(); ++i) {
    const int level = static_cast<int>(i);
    const std::string sign = sign_name(weight, level), alpha = alpha_name(weight, level);
    const SafetensorsEntry &s = levels[i].sign, &a = levels[i].alpha;
    if (s.bytes < 0)
      return wrong(sign, fmt::format("missing; the file holds '{}'",
                                     a.bytes < 0 ? sign_name(weight, level + 1) : alpha));
    if (a.bytes < 0) return wrong(alpha, fmt::format("missing; the file holds '{}'", sign));
    if (s.dtype != DType::kU8)
      return wrong(sign, fmt::format("its type is {}, expected U8", dtype_name(s.dtype)));
    if (a.dtype != DType::kF32)
      return wrong(alpha, fmt::format("its type is {}, expected F32", dtype_name(a.dtype)));
    if (s.shape.rank() != 2 || s.shape[0] < 1 || s.shape[1] < 1)
      return wrong(sign, fmt::format("its shape is {}, expected [d_out, ⌈d_in/8⌉]", s.shape.str()));
    if (!(s.shape == levels[0].sign.shape))
      return wrong(sign, fmt::format("its shape is {}, expected that of the first level, {}",
                                     s.shape.str(), levels[0].sign.shape.str()));
    const Shape expected{header_.alpha_per_row ? s.shape[0] : 1};
    if (!(a.shape == expected))
      return wrong(alpha,
                   fmt::format("its shape is {}, expected {} (metadata: alpha = {})", a.shape.str(),
                               expected.str(), header_.alpha_per_row ? "row" : "matrix"));
  }
  return {};
}

HeadSource DeltaFile::head_source(bool base_tied) const {
  if (dense_.count(kHead) != 0) return HeadSource::kFileHead;
  if (header_.tie_word_embeddings.value_or(base_tied) && dense_.count(kEmbeddings) != 0)
    return HeadSource::kFileEmbeddings;
  return HeadSource::kBaseHead;
}

Status DeltaFile::check_shapes(const WeightTable& table) const {
  const auto find = [&](const std::string& weight) -> const WeightTable::Place* {
    const auto it = table.by_name.find(weight);
    return it == table.by_name.end() ? nullptr : &it->second;
  };
  // A tensor of a matrix inside the blocks, and the shape that it must have of [d_out, d_in].
  const auto check_delta = [&](const std::string& weight, const std::string& tensor,
                               const Shape& shape, auto expected_of) -> Status {
    const WeightTable::Place* place = find(weight);
    if (place == nullptr) return wrong(tensor, fmt::format("the base has no matrix '{}'", weight));
    if (!is_block_matrix(weight))
      return wrong(tensor, fmt::format("'{}' cannot have a delta: only the linear layers inside "
                                       "the blocks can, all else is dense",
                                       weight));
    const WeightSpec& spec = table.specs[static_cast<size_t>(place->weight)];
    const Shape expected =
        expected_of(spec.parts[static_cast<size_t>(place->part)].rows, spec.columns);
    if (shape == expected) return {};
    return wrong(tensor, fmt::format("its shape is {}, expected {} for this base", shape.str(),
                                     expected.str()));
  };
  for (const auto& [weight, levels] : matrices_)
    RETURN_IF_ERROR(check_delta(weight, sign_name(weight, 0), levels[0].sign.shape,
                                [](int64_t rows, int64_t columns) {
                                  return Shape{rows, (columns + 7) / 8};
                                }));
  for (const auto& [weight, entry] : low_rank_) {
    const int64_t rank = entry.shape[0];
    RETURN_IF_ERROR(check_delta(weight, low_rank_name(weight), entry.shape,
                                [rank](int64_t rows, int64_t columns) {
                                  return Shape{rank, low_rank_row_bytes(columns, rows)};
                                }));
  }
  for (const auto& [name, entry] : dense_) {
    const WeightTable::Place* place = find(name);
    if (place == nullptr) return wrong(name, "the base has no tensor of that name");
    const WeightSpec& spec = table.specs[static_cast<size_t>(place->weight)];
    const int64_t rows = spec.parts[static_cast<size_t>(place->part)].rows;
    Shape expected{rows};
    if (spec.kind != WeightKind::kVector) expected.append(spec.columns);
    const bool may_grow = place->weight == table.embedding || place->weight == table.head;
    const bool fits =
        entry.shape == expected || (may_grow && entry.shape.rank() == 2 && entry.shape[0] >= rows &&
                                    entry.shape[0] <= INT32_MAX && entry.shape[1] == spec.columns);
    if (!fits)
      return wrong(name,
                   fmt::format("its shape is {}, expected {}{} for this base", entry.shape.str(),
                               expected.str(), may_grow ? " or more rows" : ""));
  }
  return {};
}

Status DeltaFile::check_base(const std::string& architecture,
                             const std::string& base_digest) const {
  if (!architecture.empty() && header_.architecture != architecture)
    return invalid_argument(fmt::format("{}: made for architecture {}, expected {}", path(),
                                        header_.architecture.substr(0, 100), architecture));
  if (!base_digest.empty() && !header_.base_digest.empty() && header_.base_digest != base_digest)
    return invalid_argument(
        fmt::format("{}: made for another base: its base_digest is {} ({}), expected {}", path(),
                    header_.base_digest, header_.base_name.substr(0, 100), base_digest));
  return {};
}

}  // namespace deltad
