// Reading a Hugging Face folder. Immutable once open; rows are read by any thread.
#include "model/hf_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "io/convert.h"
#include "io/file_reader.h"
#include "io/safetensors.h"

namespace deltad {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr int64_t kMaxConfigBytes = int64_t{4} << 20;
constexpr int64_t kMaxIndexBytes = int64_t{64} << 20;
constexpr int64_t kStagingBytes = int64_t{1} << 20;  // of a read that needs converting
constexpr std::array<std::string_view, 5> kTextFiles = {"tokenizer.json", "tokenizer_config.json",
                                                        "chat_template.jinja",
                                                        "generation_config.json", "config.json"};

class HfCheckpoint final : public Checkpoint {
 public:
  explicit HfCheckpoint(std::string folder) : path_(std::move(folder)) {}

  Status open() {
    ASSIGN_OR_RETURN(const std::string config, read_file(path_ + "/config.json", kMaxConfigBytes));
    std::string generation;
    if (file_exists(path_ + "/generation_config.json")) {
      ASSIGN_OR_RETURN(generation, read_file(path_ + "/generation_config.json", kMaxConfigBytes));
    }
    Result<ModelConfig> parsed = parse_hf_config(config, generation);
    if (!parsed.ok()) return parsed.status().in(path_);
    config_ = std::move(*parsed);
    std::error_code ignored;
    const auto whole = std::filesystem::absolute(path_ + "/.", ignored).lexically_normal();
    config_.name = whole.parent_path().filename().string();

    if (file_exists(path_ + "/" + kSingle)) return add_file(kSingle);
    if (file_exists(path_ + "/" + kIndex)) return add_shards();
    return not_found(fmt::format("{} has no weights; expected {} or {}", path_, kSingle, kIndex));
  }

  const std::string& path() const override { return path_; }
  const ModelConfig& config() const override { return config_; }
  const std::map<std::string, CheckpointTensor>& tensors() const override { return tensors_; }

  Status read_rows_f32(const std::string& name, int64_t first, int64_t count,
                       float* out) const override {
    return read_rows(name, first, count, DType::kF32, out);
  }
  Status read_rows_bf16(const std::string& name, int64_t first, int64_t count,
                        uint16_t* out) const override {
    return read_rows(name, first, count, DType::kBF16, out);
  }

  std::string text_file(const std::string& name) const override {
    if (std::find(kTextFiles.begin(), kTextFiles.end(), name) == kTextFiles.end()) return "";
    const std::string path = path_ + "/" + name;
    if (!file_exists(path)) return "";
    Result<std::string> text = read_file(path);
    if (text.ok()) return std::move(*text);
    log_warning("{}", text.status().message());
    return "";
  }

 private:
  struct Source {
    size_t file;
    const SafetensorsEntry* entry;
  };

  Status add_file(const std::string& name) {
    ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::open(path_ + "/" + name));
    files_.push_back(std::make_unique<const SafetensorsFile>(std::move(opened)));
    const SafetensorsFile& file = *files_.back();
    for (const auto& [tensor, entry] : file.tensors()) {
      if (is_derived(tensor)) continue;
      if (entry.dtype != DType::kF32 && entry.dtype != DType::kF16 && entry.dtype != DType::kBF16)
        return invalid_argument(fmt::format("{}: tensor {} is {}; expected F32, F16 or BF16",
                                            file.path(), tensor, dtype_name(entry.dtype)));
      if (entry.shape.rank() != 1 && entry.shape.rank() != 2)
        return invalid_argument(
            fmt::format("{}: tensor {} has the shape {}; expected one or two dimensions",
                        file.path(), tensor, entry.shape.str()));
      const auto [at, is_new] = sources_.try_emplace(tensor, Source{files_.size() - 1, &entry});
      if (!is_new)
        return invalid_argument(fmt::format("tensor {} is in both {} and {}", tensor,
                                            files_[at->second.file]->path(), file.path()));
      tensors_[tensor] = {entry.shape, dtype_name(entry.dtype),
                          static_cast<int64_t>(files_.size()) - 1, entry.offset};
    }
    return {};
  }

  // What the library does not load either: a head that is tied all the same, and the rotary
  // frequencies that old versions stored.
  bool is_derived(const std::string& tensor) const {
    return (config_.tied_head && tensor == "lm_head.weight") ||
           tensor.ends_with(".rotary_emb.inv_freq");
  }

  // The index: {"weight_map": {tensor: file name}}.
  Status add_shards() {
    const std::string path = path_ + "/" + kIndex;
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxIndexBytes));
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
      return invalid_argument(
          fmt::format("{}: expected a JSON object with an object 'weight_map'", path));
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : json["weight_map"].items()) {
      if (!shard.is_string())
        return invalid_argument(
            fmt::format("{}: the file of tensor {} is no string", path, tensor));
      const std::string& name = shard.get_ref<const std::string&>();
      // A name, not a path: an index must not reach outside its folder.
      if (!name.ends_with(".safetensors") || name.find('/') != std::string::npos ||
          name.find('\0') != std::string::npos)
        return invalid_argument(
            fmt::format("{}: tensor {} is said to be in '{}'; expected the "
                        "name of a .safetensors file beside the index",
                        path, tensor, name));
      shards.insert(name);
    }
    for (const std::string& shard : shards) RETURN_IF_ERROR(add_file(shard));
    for (const auto& [tensor, shard] : json["weight_map"].items()) {
      if (is_derived(tensor)) continue;
      const std::string expected = path_ + "/" + shard.get_ref<const std::string&>();
      const auto at = sources_.find(tensor);
      if (at == sources_.end() || files_[at->second.file]->path() != expected)
        return invalid_argument(
            fmt::format("{} says that tensor {} is in {}, but it is not", path, tensor, expected));
    }
    return {};
  }

  Status read_rows(const std::string& name, int64_t first, int64_t count, DType to,
                   void* out) const {
    const auto at = sources_.find(name);
    if (at == sources_.end()) return not_found(fmt::format("{} has no tensor {}", path_, name));
    const SafetensorsEntry& entry = *at->second.entry;
    if (first < 0 || count < 0 || first > entry.shape[0] || count > entry.shape[0] - first)
      return invalid_argument(fmt::format("{}: {} rows from {} are beyond the {} rows of tensor {}",
                                          path_, count, first, entry.shape[0], name));
    const SafetensorsFile& file = *files_[at->second.file];
    const int64_t columns = entry.shape.rank() == 2 ? entry.shape[1] : 1;
    const int64_t size = static_cast<int64_t>(dtype_size(entry.dtype));
    const int64_t begin = first * columns, values = count * columns;
    if (entry.dtype == to) return file.read(entry, begin * size, values * size, out);

    const int64_t block = std::min(values, kStagingBytes / size);
    const auto staging =
        std::make_unique_for_overwrite<uint32_t[]>(static_cast<size_t>((block * size + 3) / 4));
    for (int64_t done = 0; done < values; done += block) {
      const int64_t part = std::min(block, values - done);
      RETURN_IF_ERROR(file.read(entry, (begin + done) * size, part * size, staging.get()));
      convert(staging.get(), entry.dtype, out, to, done, part);
    }
    return {};
  }

  // `count` values from staging to out[at].
  static void convert(const void* staging, DType from, void* out, DType to, int64_t at,
                      int64_t count) {
    const auto* halves = static_cast<const uint16_t*>(staging);
    if (to == DType::kF32) {
      float* floats = static_cast<float*>(out) + at;
      if (from == DType::kF16) f16_to_f32(halves, floats, count);
      if (from == DType::kBF16) bf16_to_f32(halves, floats, count);
    } else {
      uint16_t* rounded = static_cast<uint16_t*>(out) + at;
      if (from == DType::kF16) f16_to_bf16(halves, rounded, count);
      if (from == DType::kF32) f32_to_bf16(static_cast<const float*>(staging), rounded, count);
    }
  }

  const std::string path_;
  ModelConfig config_;
  std::vector<std::unique_ptr<const SafetensorsFile>> files_;
  std::map<std::string, Source> sources_;
  std::map<std::string, CheckpointTensor> tensors_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_hf_checkpoint(const std::string& folder) {
  auto checkpoint = std::make_unique<HfCheckpoint>(folder);
  RETURN_IF_ERROR(checkpoint->open());
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace deltad
