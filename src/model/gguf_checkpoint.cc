// Reading a GGUF file of the llama architecture. Immutable once open; rows are read by any thread.
#include "model/gguf_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "io/quote.h"

namespace deltad {
namespace {

struct NamePair {
  const char* gguf;
  const char* hub;
  bool permuted = false;  // rows of each head are paired for another way to rotate
};
constexpr std::array<NamePair, 3> kModelNames = {{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
}};
constexpr std::array<NamePair, 9> kBlockNames = {{
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj", true},
    {"attn_k", "self_attn.k_proj", true},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
}};

}  // namespace

std::optional<GgufName> hub_name_of(const std::string& gguf_name) {
  const std::string_view name = gguf_name;
  constexpr std::string_view kWeight = ".weight", kBlock = "blk.";
  if (!name.ends_with(kWeight)) return std::nullopt;
  const std::string_view stem = name.substr(0, name.size() - kWeight.size());
  for (const NamePair& pair : kModelNames)
    if (stem == pair.gguf) return GgufName{fmt::format("{}.weight", pair.hub), false};
  if (!stem.starts_with(kBlock)) return std::nullopt;
  const size_t dot = stem.find('.', kBlock.size());
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view number = stem.substr(kBlock.size(), dot - kBlock.size());
  if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  for (const NamePair& pair : kBlockNames)
    if (stem.substr(dot + 1) == pair.gguf)
      return GgufName{fmt::format("model.layers.{}.{}.weight", number, pair.hub), pair.permuted};
  return std::nullopt;
}

namespace {

class GgufCheckpoint final : public Checkpoint {
 public:
  explicit GgufCheckpoint(std::unique_ptr<GgufFile> file) : file_(std::move(file)) {}

  Status open() {
    ASSIGN_OR_RETURN(config_, read_gguf_config(*file_));
    std::set<std::string> left;
    for (const auto& [name, tensor] : file_->tensors()) left.insert(name);
    for (const NamePair& pair : kModelNames)
      RETURN_IF_ERROR(add(fmt::format("{}.weight", pair.gguf), fmt::format("{}.weight", pair.hub),
                          false, &left));
    for (int64_t i = 0; i < config_.layers && !left.empty(); ++i)
      for (const NamePair& pair : kBlockNames)
        RETURN_IF_ERROR(add(fmt::format("blk.{}.{}.weight", i, pair.gguf),
                            fmt::format("model.layers.{}.{}.weight", i, pair.hub), pair.permuted,
                            &left));
    // A tensor that we do not know (a bias, an expert) would be missing from the arithmetic.
    if (!left.empty())
      return unimplemented(fmt::format("{}: tensor {} is not known for a llama model of {} blocks",
                                       path(), quoted_name(*left.begin()), config_.layers));
    return {};
  }

  const std::string& path() const override { return file_->path(); }
  const ModelConfig& config() const override { return config_; }
  const std::map<std::string, CheckpointTensor>& tensors() const override { return tensors_; }
  std::string text_file(const std::string&) const override { return ""; }
  const GgufFile* gguf() const override { return file_.get(); }

  Status read_rows_f32(const std::string& name, int64_t first, int64_t count,
                       float* out) const override {
    return read_rows(name, first, count, out);
  }
  Status read_rows_bf16(const std::string& name, int64_t first, int64_t count,
                        uint16_t* out) const override {
    return read_rows(name, first, count, out);
  }

 private:
  struct Source {
    const GgufTensor* tensor;
    bool permuted;
  };

  // Takes the file's tensor `name`, if it has one, as the hub's `hub_name`.
  Status add(const std::string& name, const std::string& hub_name, bool permuted,
             std::set<std::string>* left) {
    const auto at = file_->tensors().find(name);
    if (at == file_->tensors().end()) return {};  // whether it is missed, the loader says
    left->erase(name);
    const GgufTensor& tensor = at->second;
    const GgufBlock* block = gguf_block(tensor.type);
    if (block == nullptr || (tensor.shape.size() == 1 && block->values > 1))
      return unimplemented(
          fmt::format("{}: tensor {} is {}; supported are {}F32, F16 and BF16", path(), name,
                      gguf_type_name(tensor.type),
                      tensor.shape.size() == 1 ? "for a vector " : "Q8_0, Q4_0, Q4_1, "));
    if (tensor.shape.size() > 2)
      return invalid_argument(fmt::format("{}: tensor {} has {} dimensions; expected 1 or 2",
                                          path(), name, tensor.shape.size()));
    if (permuted && (tensor.shape.size() != 2 || tensor.rows() % config_.head_dim != 0))
      return invalid_argument(fmt::format("{}: tensor {} has {} rows; expected whole heads of {}",
                                          path(), name, tensor.rows(), config_.head_dim));
    Shape shape;
    for (int64_t size : tensor.shape) shape.append(size);
    tensors_[hub_name] = {shape, gguf_type_name(tensor.type), 0, tensor.offset};
    sources_[hub_name] = {&tensor, permuted};
    return {};
  }

  // Within a head, the file's row 2r is the hub's row r and the file's 2r+1 the hub's r +
  // head_dim/2.
  int64_t hub_row(int64_t file_row) const {
    const int64_t row = file_row % config_.head_dim;
    return file_row - row + row / 2 + row % 2 * (config_.head_dim / 2);
  }

  template <typename Out>
  Status read_rows(const std::string& name, int64_t first, int64_t count, Out* out) const {
    const auto at = sources_.find(name);
    if (at == sources_.end()) return not_found(fmt::format("{} has no tensor {}", path(), name));
    const GgufTensor& tensor = *at->second.tensor;
    if (first < 0 || count < 0 || first > tensor.rows() || count > tensor.rows() - first)
      return invalid_argument(fmt::format("{}: {} rows from {} are beyond the {} rows of tensor {}",
                                          path(), count, first, tensor.rows(), name));
    const int64_t columns = tensor.columns();
    const Status status =
        at->second.permuted
            ? read_permuted(tensor, first, count, out)
            : file_->visit_rows(
                  tensor, first, count, [&](int64_t value, int64_t values, const uint8_t* raw) {
                    gguf_dequantise(tensor.type, raw, values, out + (value - first * columns));
                  });
    return status.in("tensor " + name);
  }

  // Reads, head by head, the file's rows that hold the wanted ones (of half a head, every other one
  // is not), and puts each where the hub has it.
  template <typename Out>
  Status read_permuted(const GgufTensor& tensor, int64_t first, int64_t count, Out* out) const {
    const int64_t columns = tensor.columns(), head = config_.head_dim, half = head / 2;
    const GgufBlock& block = *gguf_block(tensor.type);
    const int64_t end = first + count;
    const auto place = [&](int64_t value, int64_t values, const uint8_t* raw) {
      while (values > 0) {
        const int64_t column = value % columns;
        const int64_t part = std::min(values, columns - column);
        const int64_t row = hub_row(value / columns);
        if (row >= first && row < end)
          gguf_dequantise(tensor.type, raw, part, out + (row - first) * columns + column);
        raw += part / block.values * block.bytes;
        value += part;
        values -= part;
      }
    };
    for (int64_t at = first; at < end;) {
      // As many whole heads as there are in one go; else what is wanted of one head.
      const int64_t begin = at / head * head;
      int64_t low = begin, high = begin + head, next = begin + head;
      if (at == begin && end - at >= head) {
        next = high = begin + (end - at) / head * head;
      } else {
        next = std::min(next, end);
        const int64_t from = at - begin, to = next - begin;  // hub rows of the head
        // File rows of the wanted ones: 2r in the first half, 2(r − half) + 1 in the second.
        if (to <= half || from >= half) {
          const int64_t odd = from >= half ? 1 : 0;
          low = begin + 2 * (from - odd * half) + odd;
          high = begin + 2 * (to - 1 - odd * half) + odd + 1;
        }
      }
      RETURN_IF_ERROR(file_->visit_rows(tensor, low, high - low, place));
      at = next;
    }
    return {};
  }

  const std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
  std::map<std::string, CheckpointTensor> tensors_;
  std::map<std::string, Source> sources_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf_checkpoint(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::open(path));
  return make_gguf_checkpoint(std::move(file));
}

Result<std::unique_ptr<Checkpoint>> make_gguf_checkpoint(std::unique_ptr<GgufFile> file) {
  auto checkpoint = std::make_unique<GgufCheckpoint>(std::move(file));
  RETURN_IF_ERROR(checkpoint->open());
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace deltad
